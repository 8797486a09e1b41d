// The executor of `runtime.program.program.ProgramSpec`: a flat list of steps run in C++.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

bool program_check(PyObject *object);  // whether it is a `_native.Program`
Py_ssize_t program_n_inputs(PyObject *program);
Py_ssize_t program_n_outputs(PyObject *program);
// Runs on exactly n_inputs tensors, which the guards have checked, and fills n_outputs new
// references. 0 on success; -1 with a Python error set and no references held.
int program_run(PyObject *program, PyObject *const *inputs, Py_ssize_t n, PyObject **outputs);

int program_init(PyObject *module);
