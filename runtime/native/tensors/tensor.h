// Reading tensors and torch's interpreter state without torch headers.
//
// Every route is found by dlsym or by matching values at first use, self-tested, and has a slower fallback;
// `_native.tensor_routes()` names what is in use. Guards compare through the records here.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

struct TensorRecord;
struct StateRecord;

// A `runtime.guards.rows.TensorSpec` prepared for comparing; nullptr with a Python error set on a bad spec.
TensorRecord *tensor_record_new(PyObject *spec);
void tensor_record_free(TensorRecord *record);
// Exact type, dtype, device, sizes, strides, requires_grad, dispatch keys. Never raises, never runs user code.
bool tensor_record_matches(const TensorRecord *record, PyObject *value);

// Size (or stride) number `dim` of a strided tensor; false if there is none.
bool tensor_extent(PyObject *tensor, bool size, int64_t dim, int64_t *found);

// Whether it is compared through words of memory alone: dense, and of a dtype and device that the shim knows.
bool tensor_record_is_native(const TensorRecord *record);

bool tensor_is_plain(PyObject *value);                  // of class torch.Tensor or Parameter
bool tensor_is_tensor(PyObject *value);                 // an instance of torch.Tensor (subclasses too)
bool tensor_overlap(PyObject *first, PyObject *second); // conservative: true if it cannot be ruled out
// The addresses that a tensor can touch, end exclusive: 1 if known, 0 if it has no memory, -1 if it cannot be told.
int tensor_range(PyObject *tensor, uint64_t *begin, uint64_t *end);
// Whether `runtime.guards.tensor_access.history` says this word of a tensor. Never raises, never runs user code.
bool tensor_history_is(PyObject *tensor, PyObject *expected);
// `.grad` of a plain tensor that is a leaf, a new reference; null for anything else. Runs no user code.
PyObject *tensor_gradient(PyObject *tensor);
// Whether nobody has hung a hook on a plain tensor. Never raises, never runs user code.
bool tensor_is_unhooked(PyObject *tensor);

// A `runtime.guards.interpreter_state.State` prepared for comparing with what is in force on this thread now.
StateRecord *state_record_new(PyObject *snapshot);
void state_record_free(StateRecord *record);
bool state_record_matches(const StateRecord *record);
// Whether that runs no Python: the packed image is compared.
bool state_record_is_native(const StateRecord *record);

int tensor_init(PyObject *module);
