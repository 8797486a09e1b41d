// What a tensor's metadata looked like in memory, to see in a few loads that it is the same now.
//
// Only words whose places were found and tested at import are read (`trace_bind`, called by runtime/guards/tensor_access.py); a
// difference means nothing by itself: the record of the guard decides then. Used by heap.cpp.
#pragma once

#include "frame/class_watch.h"
#include "tensors/torch_api.h"

#include <vector>

// The words of a TensorImpl that metadata is made of, and what is asked of its autograd data.
struct TensorWords {
    PyTypeObject *type;
    uint64_t keys, kind;         // key set; dtype, device and flags
    uint64_t sizes[11];          // number of dimensions, room for five sizes, room for five strides
    bool steady;                 // the same objects for sure, while nothing on the way to them has changed
    bool has_autograd;           // else no gradient is required
    bool wants_grad, has_maker;  // its own flag; whether a node made it. A gradient is required if either says so
    bool operator==(const TensorWords &) const = default;
};

// Where the words lie; -1: not found, nothing can be traced.
struct TensorPlaces {
    Py_ssize_t sizes = -1, kind = -1, autograd = -1, wants_grad = -1, made_by = -1;
};
extern TensorPlaces tensor_places;

// Tensors with equal words, which are compared with one expectation: many of a model's are alike.
struct TensorGroup {
    struct Member {
        PyObject *object;
        const char *impl, *autograd;
    };
    TensorWords words;
    std::vector<Member> members;
};

class TensorTraces {
  public:
    // Takes a trace of an exact strided tensor; false if it cannot be traced.
    bool add(PyObject *tensor, bool steady);

    // Whether all of them are as they were. The objects must be alive; `settled`: nothing was reassigned (reassigned.h).
    bool unchanged(bool settled) const;

  private:
    std::vector<TensorGroup> groups;
};

int trace_init(PyObject *module);
