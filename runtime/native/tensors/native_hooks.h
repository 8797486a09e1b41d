// Tensors whose gradients have hooks of C++ code, which Python cannot see.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

bool is_hooked_natively(PyObject *tensor);

int native_hooks_init(PyObject *module);
