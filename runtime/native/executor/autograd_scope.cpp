#include "executor/autograd_scope.h"

#include <dlfcn.h>

#include "tensors/torch_api.h"

namespace {

template <typename Function>
void find(void *library, const char *name, Function *place) {
    *(void **)place = library == nullptr ? nullptr : dlsym(library, name);
}

struct Modes {
    bool (*autocast_enabled)(int8_t) = nullptr;
    void (*set_autocast)(int8_t, bool) = nullptr;
    bool (*grad_enabled)() = nullptr;
    void (*set_grad)(bool) = nullptr;

    Modes() {
        void *cpu = torch_api.library;
        find(cpu, "_ZN2at8autocast20set_autocast_enabledEN3c1010DeviceTypeEb", &set_autocast);
        find(cpu, "aoti_torch_grad_mode_set_enabled", &set_grad);
        if (set_autocast)
            find(cpu, "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE", &autocast_enabled);
        if (set_grad) find(cpu, "aoti_torch_grad_mode_is_enabled", &grad_enabled);
    }
};

const Modes &modes() {
    static const Modes found;
    return found;
}

struct Handler {
    void (*construct)(void *) = nullptr, (*destroy)(void *) = nullptr;

    Handler() {
        find(torch_api.python, "_ZN5torch16PyWarningHandlerD1Ev", &destroy);
        if (destroy) find(torch_api.python, "_ZN5torch16PyWarningHandlerC1Ev", &construct);
    }
};

const Handler &handler() {
    static const Handler found;
    return found;
}

// warned_call(callable, *args): the call, with torch's C++ warnings as Python warnings.
PyObject *warned_call(PyObject *, PyObject *const *args, Py_ssize_t n) {
    if (n < 1) {
        PyErr_SetString(PyExc_TypeError, "warned_call(callable, *args)");
        return nullptr;
    }
    if (torch_api_ready() < 0) return nullptr;
    Warnings warnings;
    warnings.enter();
    PyObject *result = PyObject_Vectorcall(
        args[0], args + 1, (size_t)(n - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    if (warnings.leave() != 0) Py_CLEAR(result);
    return result;
}

PyMethodDef methods[] = {
    {"warned_call", (PyCFunction)(void (*)())warned_call, METH_FASTCALL,
     "warned_call(callable, *args): the call, with torch's C++ warnings as Python's"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void AmbientOff::enter(bool an_input_requires_grad) {
    const Modes &found = modes();
    for (int8_t device = 0; device < 2; device++)
        if (found.autocast_enabled && found.autocast_enabled(device)) {
            was_cast_[device] = true;
            found.set_autocast(device, false);
        }
    if (an_input_requires_grad && found.grad_enabled && found.grad_enabled()) {
        was_grad_ = true;
        found.set_grad(false);
    }
}

void AmbientOff::leave() {
    for (int8_t device = 0; device < 2; device++)
        if (was_cast_[device]) modes().set_autocast(device, true);
    if (was_grad_) modes().set_grad(true);
}

void AmbientOff::set_grad(bool on) { modes().set_grad(on); }

void Warnings::enter() {
    if (handler().construct == nullptr) return;
    handler().construct(handler_);
    active_ = true;
}

int Warnings::leave() {
    if (!active_) return 0;
    active_ = false;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    try {
        handler().destroy(handler_);
    } catch (...) {
        if (type == nullptr && PyErr_Occurred()) return -1;
    }
    if (type != nullptr) PyErr_Restore(type, value, trace);
    return 0;
}

int ambient_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
