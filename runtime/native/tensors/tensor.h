// Reads tensors and torch's interpreter state without torch headers.
//
// Every route is found by dlsym or by matching values at first use, is self-tested, and has a
// slower fallback. `_native.tensor_routes()` names the routes in use. Guards compare tensors
// through the records declared here.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

struct TensorRecord;
struct StateRecord;

// A prepared `runtime.guards.rows.TensorSpec`; nullptr with a Python error set for an invalid spec.
TensorRecord *tensor_record_new(PyObject *spec);
void tensor_record_free(TensorRecord *record);
// Compares exact type, dtype, device, sizes, strides, requires_grad, dispatch keys. Never raises
// and never runs user code.
bool tensor_record_matches(const TensorRecord *record, PyObject *value);

// Size (or stride) of dimension `dim` of a strided tensor; false if there is none.
bool tensor_extent(PyObject *tensor, bool size, int64_t dim, int64_t *found);

// Whether it is compared by memory words alone: it is dense, and the shim knows its dtype and
// device.
bool tensor_record_is_native(const TensorRecord *record);

// Whether the class is torch.Tensor or Parameter.
bool tensor_is_plain(PyObject *value);
// Whether it is an instance of torch.Tensor or of a subclass.
bool tensor_is_tensor(PyObject *value);
// Conservative: true unless an overlap can be ruled out.
bool tensor_overlap(PyObject *first, PyObject *second);
// The addresses that a tensor can access, end exclusive. Returns 1 if known, 0 if it has no memory,
// -1 if unknown.
int tensor_range(PyObject *tensor, uint64_t *begin, uint64_t *end);
// `.grad` of a plain leaf tensor, as a new reference; null for any other object. Runs no user code.
PyObject *tensor_gradient(PyObject *tensor);
// Whether a plain tensor has no gradient hooks, nor another dtype for its gradient. Never raises
// and never runs user code.
bool tensor_is_unhooked(PyObject *tensor);

// A prepared `runtime.guards.interpreter_state.State`, for comparison with the state of this
// thread.
StateRecord *state_record_new(PyObject *snapshot);
void state_record_free(StateRecord *record);
bool state_record_matches(const StateRecord *record);
// The place of the innermost of the program's hooks for saved tensors on this thread; null: none.
const void *saving_hooks();
// Whether the comparison runs no Python, because the packed image is compared.
bool state_record_is_native(const StateRecord *record);

int tensor_init(PyObject *module);
