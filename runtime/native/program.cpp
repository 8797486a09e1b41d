#include "program.h"
bool program_check(PyObject *) { return false; }
Py_ssize_t program_n_inputs(PyObject *) { return 0; }
Py_ssize_t program_n_outputs(PyObject *) { return 0; }
int program_run(PyObject *, PyObject *const *, Py_ssize_t, PyObject **) { PyErr_SetString(PyExc_NotImplementedError, "program"); return -1; }
int program_init(PyObject *) { return 0; }
