// Snapshots of tensor metadata in memory, to detect by a few loads that it has not changed.
//
// Only words whose offsets were found and tested (`trace_bind`, called by
// runtime/guards/tensor_access.py) are read. A difference is not a failure by itself: the guard's
// record then decides. Used by the heap guards.
#pragma once

#include "frame/class_watch.h"
#include "tensors/torch_api.h"

#include <vector>

// The words of a TensorImpl that hold metadata, and the relevant autograd data.
struct TensorWords {
    PyTypeObject *type;
    uint64_t keys, kind;  // key set; dtype, device and flags
    // number of dimensions, five sizes, five strides
    uint64_t sizes[11];
    // The object is certainly the same while nothing on its path has changed.
    bool steady;
    bool has_autograd;  // if false, no gradient is required
    // requires_grad of its own; whether a node made it. Either means that a gradient is required.
    bool wants_grad, has_maker;
    bool operator==(const TensorWords &) const = default;
};

// Offsets of the words; -1: not found, so that nothing can be traced.
struct TensorPlaces {
    Py_ssize_t sizes = -1, kind = -1, autograd = -1, wants_grad = -1, made_by = -1;
};
extern TensorPlaces tensor_places;

// Tensors with equal words, compared with one expectation: many tensors of a model are alike.
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
    // Adds a snapshot of an exact strided tensor; false if that is impossible.
    bool add(PyObject *tensor, bool steady);

    // Whether all tensors are unchanged. The objects must be alive. `settled`: no class or
    // `__dict__` was reassigned (class_watch.h).
    bool unchanged(bool settled) const;

  private:
    std::vector<TensorGroup> groups;
};

int trace_init(PyObject *module);
