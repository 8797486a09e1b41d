// The extension module `graftjit.runtime._native`: each part adds its types and functions.
#include "callable.h"
#include "ambient.h"
#include "cuda_driver.h"
#include "hook.h"
#include "program.h"
#include "reassigned.h"
#include "tail.h"
#include "tensor.h"
#include "tensor_trace.h"
#include "watch.h"

namespace {

struct PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1, nullptr};

using Init = int (*)(PyObject *);
const Init PARTS[] = {watch_init, reassigned_init, tensor_init, trace_init, ambient_init, cuda_driver_init, program_init,  guards_init, entry_init,
                      state_init,  callable_init, tail_init,    hook_init,     clocks_init};

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
    if (PyModule_AddStringConstant(module, "SOURCES", GRAFTJIT_SOURCES) < 0) {  // see native_sources.py
        Py_DECREF(module);
        return nullptr;
    }
    return module;
}
