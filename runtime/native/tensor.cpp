#include "tensor.h"
struct TensorRecord { PyObject *spec; };
struct StateRecord { PyObject *spec; };
static PyObject *todo() { PyErr_SetString(PyExc_NotImplementedError, "tensor routes"); return nullptr; }
TensorRecord *tensor_record_new(PyObject *) { todo(); return nullptr; }
void tensor_record_free(TensorRecord *) {}
bool tensor_record_matches(const TensorRecord *, PyObject *) { return false; }
bool tensor_is_tensor(PyObject *) { return false; }
bool tensor_overlap(PyObject *, PyObject *) { return true; }
StateRecord *state_record_new(PyObject *) { todo(); return nullptr; }
void state_record_free(StateRecord *) {}
bool state_record_matches(const StateRecord *) { return false; }
int tensor_init(PyObject *) { return 0; }
