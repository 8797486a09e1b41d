#include "frame/tail_call.h"

#include "frame/code_state.h"

#include "structmember.h"

namespace {

struct Tail {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *target;  // a weak reference
};

struct Pending {
    PyObject_VAR_HEAD
    PyObject *target;
    PyObject *values[1];
};

PyTypeObject *tail_type, *pending_type;

// A new reference. The target lives as long as the state of the frame that ended, which the running
// call keeps alive.
PyObject *tail_target(Tail *self) {
    PyObject *target = self->target == nullptr ? nullptr : referent(self->target);
    if (target != nullptr) return Py_NewRef(target);
    PyErr_SetString(PyExc_SystemError, "graftjit: what resumes this frame is gone");
    return nullptr;
}

PyObject *tail_get_target(PyObject *self, void *) { return tail_target((Tail *)self); }

PyObject *tail_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    if (kwnames != nullptr) {
        PyErr_SetString(PyExc_SystemError, "graftjit: a resume function takes no keywords");
        return nullptr;
    }
    Ref target(tail_target((Tail *)object));
    if (!target) return nullptr;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    auto *pending = (Pending *)pending_type->tp_alloc(pending_type, n);
    if (pending == nullptr) return nullptr;
    pending->target = target.release();
    for (Py_ssize_t i = 0; i < n; i++) {
        if (args[i] == nullptr) {
            Py_DECREF(pending);
            PyErr_SetString(PyExc_SystemError,
                            "graftjit: a frame is resumed with a local that has no value");
            return nullptr;
        }
        pending->values[i] = Py_NewRef(args[i]);
    }
    return (PyObject *)pending;
}

int pending_traverse(PyObject *object, visitproc visit, void *arg) {
    auto *self = (Pending *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->target);
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) Py_VISIT(self->values[i]);
    return 0;
}

int pending_clear(PyObject *object) {
    auto *self = (Pending *)object;
    Py_CLEAR(self->target);
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) Py_CLEAR(self->values[i]);
    return 0;
}

int tail_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Tail *)object)->target);
    return 0;
}

int tail_clear(PyObject *object) {
    Py_CLEAR(((Tail *)object)->target);
    return 0;
}

template <inquiry clear>
void deallocate(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject *tail_new(PyTypeObject *type, PyObject *args, PyObject *) {
    PyObject *target;
    if (!PyArg_ParseTuple(args, "O", &target)) return nullptr;
    Ref weak(PyWeakref_NewRef(target, nullptr));
    if (!weak) return nullptr;
    auto *self = (Tail *)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->vectorcall = tail_call;
    self->target = weak.release();
    return (PyObject *)self;
}

// load_cell(cell, name): the content, or the error of a local variable. A resume function gets the
// frame's own cells through its closure, where Python would report a free variable.
PyObject *load_cell(PyObject *, PyObject *const *args, Py_ssize_t n) {
    if (n != 2 || !PyCell_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "load_cell(cell, name)");
        return nullptr;
    }
    PyObject *held = PyCell_Get(args[0]);
    if (held == nullptr && !PyErr_Occurred())
        PyErr_Format(PyExc_UnboundLocalError,
                     "cannot access local variable '%U' where it is not associated with a value",
                     args[1]);
    return held;
}

PyObject *run_pending(PyObject *, PyObject *pending) { return run_tails(Py_NewRef(pending)); }

PyMethodDef functions[] = {
    {"run_pending", run_pending, METH_O,
     "run_pending(call): the result of a pending call, which gives its values away"},
    {"load_cell", (PyCFunction)(void (*)(void))load_cell, METH_FASTCALL,
     "load_cell(cell, name): what it holds; UnboundLocalError if it is empty"},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef tail_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Tail, vectorcall), READONLY, nullptr},
    {nullptr}};

PyGetSetDef tail_getset[] = {
    {"target", tail_get_target, nullptr, "the resume callable", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot tail_slots[] = {
    {Py_tp_doc,
     (void *)
     "Tail(resume): called, it makes the pending call of resume that ends a broken frame. It "
     "holds resume weakly: as a constant of code it would close circles that the collector "
     "does not see"},
    {Py_tp_getset, tail_getset},
    {Py_tp_new, (void *)tail_new},
    {Py_tp_call, (void *)PyVectorcall_Call},
    {Py_tp_members, tail_members},
    {Py_tp_traverse, (void *)tail_traverse},
    {Py_tp_clear, (void *)tail_clear},
    {Py_tp_dealloc, (void *)deallocate<tail_clear>},
    {0, nullptr}};

PyType_Spec tail_spec = {"graftjit.runtime._native.Tail", sizeof(Tail), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                         tail_slots};

PyType_Slot pending_slots[] = {
    {Py_tp_traverse, (void *)pending_traverse},
    {Py_tp_clear, (void *)pending_clear},
    {Py_tp_dealloc, (void *)deallocate<pending_clear>},
    {0, nullptr}};

PyType_Spec pending_spec = {
    "graftjit.runtime._native.Pending", offsetof(Pending, values), sizeof(PyObject *),
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, pending_slots};

}  // namespace

PyObject *run_tails(PyObject *result) {
    while (result != nullptr && Py_TYPE(result) == pending_type) {
        Ref pending(result);
        auto *call = (Pending *)result;
        Giving giving{call->values, Py_SIZE(call)};
        Giving *before = std::exchange(this_thread.giving, &giving);
        result = PyObject_Vectorcall(call->target, call->values, (size_t)Py_SIZE(call), nullptr);
        this_thread.giving = before;
    }
    return result;
}

int tail_init(PyObject *module) {
    tail_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &tail_spec, nullptr);
    pending_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &pending_spec, nullptr);
    if (tail_type == nullptr || pending_type == nullptr) return -1;
    return PyModule_AddFunctions(module, functions) < 0 ? -1 : PyModule_AddType(module, tail_type);
}
