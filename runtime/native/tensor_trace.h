// What a tensor's metadata looked like in memory, to see in a few loads that it is the same now.
//
// Only words whose places were found and tested at import are read (`trace_bind`, called by runtime/tensors.py); a
// difference means nothing by itself: the record of the guard decides then. Used by heap.cpp.
#pragma once

#include "torch_api.h"

#include <memory>
#include <vector>

// The words of a TensorImpl that metadata is made of; many tensors of a model have equal ones.
struct TensorWords {
    uint64_t keys, kind;         // key set; dtype, device and flags
    uint64_t sizes[11];          // number of dimensions, room for five sizes, room for five strides
    bool operator==(const TensorWords &) const = default;
};

struct TensorTrace {
    PyObject *object;
    PyTypeObject *type;
    void *impl;
    char *autograd;   // null: no gradient is required
    void *made_by;    // its node
    const TensorWords *words;
    char wants_grad;
};

// Where the words lie; -1: not found, nothing can be traced.
struct TensorPlaces {
    Py_ssize_t sizes = -1, kind = -1, autograd = -1, wants_grad = -1, made_by = -1;
};
extern TensorPlaces tensor_places;

using TensorWordsList = std::vector<std::unique_ptr<TensorWords>>;

// Takes a trace of an exact strided tensor; false if it cannot be traced. `known` owns the words.
bool tensor_trace(PyObject *tensor, TensorWordsList &known, TensorTrace *trace);

inline bool tensor_unchanged(const TensorTrace &trace) {
    if (Py_TYPE(trace.object) != trace.type) return false;
    const char *impl = (const char *)impl_of(handle_of(trace.object));
    if (impl != trace.impl) return false;
    const TensorWords &words = *trace.words;
    const char *autograd = *(char *const *)(impl + tensor_places.autograd);
    if (*(const uint64_t *)(impl + torch_api.keys_offset) != words.keys || autograd != trace.autograd ||
        *(const uint64_t *)(impl + tensor_places.kind) != words.kind)
        return false;
    auto *sizes = (const uint64_t *)(impl + tensor_places.sizes);
    uint64_t dim = words.sizes[0];
    if (sizes[0] != dim) return false;
    for (uint64_t i = 1; i <= dim; i++)
        if (sizes[i] != words.sizes[i] || sizes[i + 5] != words.sizes[i + 5]) return false;
    return autograd == nullptr || (autograd[tensor_places.wants_grad] == trace.wants_grad &&
                                   *(void *const *)(autograd + tensor_places.made_by) == trace.made_by);
}

int trace_init(PyObject *module);
