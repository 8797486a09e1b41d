// The callable that `jit` returns, and resume functions: a vectorcall, a descriptor, a replacement
// for its function.
#pragma once

#include "frame/code_state.h"

extern PyTypeObject *callable_type;

int callable_init(PyObject *module);
