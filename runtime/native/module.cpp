// The extension module `graftjit.runtime._native`: each part adds its types and functions.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static struct PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1, nullptr};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&module_def); }
