// The extension module `graftjit.runtime._native`: each part adds its types and functions.
#include "frame/callable.h"
#include "executor/autograd_scope.h"
#include "cuda/driver.h"
#include "frame/hook.h"
#include "guards/iterators.h"
#include "executor/program.h"
#include "executor/running_backward.h"
#include "executor/thread_limit.h"
#include "frame/class_watch.h"
#include "frame/tail_call.h"
#include "tensors/history.h"
#include "tensors/native_hooks.h"
#include "tensors/tensor.h"
#include "tensors/tensor_trace.h"
#include "frame/dict_watch.h"

namespace {

struct PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1, nullptr};

using Init = int (*)(PyObject *);
const Init PARTS[] = {watch_init,       reassigned_init, tensor_init, trace_init,
                      ambient_init,     cuda_driver_init, program_init, guards_init,
                      iterators_init,   entry_init,      state_init,  callable_init,
                      tail_init,        hook_init,       clocks_init, native_hooks_init,
                      trials_init,      thread_limit_init, history_init,
                      running_backward_init};

}  // namespace

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&module_def);
    if (module == nullptr) return nullptr;
    for (Init part : PARTS) {
        if (part(module) < 0) {
            Py_DECREF(module);
            return nullptr;
        }
    }
    // see runtime/native_sources.py
    if (PyModule_AddStringConstant(module, "SOURCES", GRAFTJIT_SOURCES) < 0) {
        Py_DECREF(module);
        return nullptr;
    }
    return module;
}
