#include "tensors/native_hooks.h"

#include <unordered_map>

namespace {

// For each tensor the number of owners of such hooks. The owners keep the tensors alive, so no
// other object takes an address in this table.
std::unordered_map<PyObject *, int> owners;

PyObject *hook_natively(PyObject *, PyObject *args) {
    PyObject *id;
    int n;
    if (!PyArg_ParseTuple(args, "O!i", &PyLong_Type, &id, &n)) return nullptr;
    auto *tensor = (PyObject *)PyLong_AsVoidPtr(id);
    if (tensor == nullptr && PyErr_Occurred()) return nullptr;
    if ((owners[tensor] += n) <= 0) owners.erase(tensor);
    Py_RETURN_NONE;
}

PyObject *hooked_natively(PyObject *, PyObject *tensor) {
    return PyBool_FromLong(is_hooked_natively(tensor));
}

PyMethodDef methods[] = {
    {"hook_natively", hook_natively, METH_VARARGS,
     "hook_natively(id of a tensor, n): add n to the owners of C++ hooks on its gradient."},
    {"hooked_natively", hooked_natively, METH_O,
     "Whether C++ code hooks the gradient of a tensor."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool is_hooked_natively(PyObject *tensor) { return !owners.empty() && owners.count(tensor) != 0; }

int native_hooks_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
