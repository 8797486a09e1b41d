#include "frame/beside.h"

#include "frame/hook.h"

namespace {

// torch._C._dynamo.eval_frame.set_eval_frame, if torch._dynamo was imported, as a new reference;
// else null, without an exception.
PyObject *callback_setter() {
    PyObject *modules = PyImport_GetModuleDict();
    if (PyDict_GetItemString(modules, "torch._dynamo") == nullptr) return nullptr;
    PyObject *torch = PyDict_GetItemString(modules, "torch._C._dynamo.eval_frame");
    PyObject *found = torch == nullptr ? nullptr : PyObject_GetAttrString(torch, "set_eval_frame");
    if (found == nullptr) PyErr_Clear();
    return found;
}

}  // namespace

WithoutDynamo::WithoutDynamo() : set_callback(callback_setter()) {
    if (!set_callback) return;
    on_top = hook_is_on_top();
    before = Ref(PyObject_CallOneArg(set_callback.get(), Py_None));
    if (!before) PyErr_Clear();
}

// Dynamo sets or removes its evaluator without checking whether another one is above it. If ours
// was on top, it is put on top again.
WithoutDynamo::~WithoutDynamo() {
    if (!before || before.get() == Py_None) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Ref done(PyObject_CallOneArg(set_callback.get(), before.get()));
    if (!done) PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    if (on_top) hook_put_on_top();
}
