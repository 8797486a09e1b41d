#include "frame/callable.h"

#include "frame/bind_arguments.h"
#include "frame/hook.h"
#include "frame/tail_call.h"
#include "tensors/tensor.h"

#include <optional>

PyTypeObject *callable_type;

namespace {

struct Callable {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function;  // the Python function; None for a resume function made from a state alone
    CodeState *state;
    PyObject *globals;  // resume: the globals of its code
    PyObject *weak_references;
    FunctionCache cache;
    PyObject *plain;  // resume: its code as a function, if it has no free variables
};

// --- calls ---------------------------------------------------------------------------------------

// Runs the original function. `outcome`: whether the hook looks up frames inside it. It does not
// look up this one again.
PyObject *call_plain(CodeState *state, PyObject *function, PyObject *const *args, size_t nargsf,
                     PyObject *kwnames, const Outcome &outcome) {
    std::optional<Extent> scope;
    std::optional<SavingScope> saving;
    std::optional<LookupScope> off;
    if (outcome.extent) {
        scope.emplace(state->config);
        saving.emplace(saving_hooks());
    }
    if (outcome.alone) off.emplace(Lookup::off);
    if (lookup_is_on()) this_thread.skip = PyFunction_GET_CODE(function);
    return call_frame(function, args, nargsf, kwnames);
}

// Whether a debugger, tracer or profiler observes the thread, and needs the original lines.
bool is_watched(CodeState *state, PyCodeObject *code) {
    if (!frame_is_watched(PyThreadState_GET(), code)) return false;
    state->watched++;
    return true;
}

// Gets the state for the new code from Python after the function's __code__ was rebound.
bool refresh_state(Callable *self, PyObject *code) {
    if (callbacks.state_for == nullptr) {
        PyErr_SetString(PyExc_RuntimeError,
                        "graftjit: __code__ was rebound and no state_for callback is set");
        return false;
    }
    Ref callback(Py_NewRef(callbacks.state_for));
    LookupScope off(Lookup::off);
    ConfigScope config(self->state->config);
    Ref state(PyObject_CallOneArg(callback.get(), code));
    if (!state) return false;
    if (!PyObject_TypeCheck(state.get(), state_type)) {
        PyErr_SetString(PyExc_TypeError, "state_for: a CodeState expected");
        return false;
    }
    Py_SETREF(self->state, (CodeState *)state.release());
    return true;
}

PyObject *call_function(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    auto *self = (Callable *)object;
    auto *function = (PyFunctionObject *)self->function;
    auto *code = (PyCodeObject *)function->func_code;
    if (self->state->code != (PyObject *)code && !refresh_state(self, (PyObject *)code))
        return nullptr;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    if (self->state->disabled || is_watched(self->state, code))
        return call_plain(self->state, self->function, args, nargsf, kwnames, {});
    Ref state(Py_NewRef((PyObject *)self->state));
    CallSample sample(((CodeState *)state.get())->clock);
    View view{args, n, function->func_globals, function->func_builtins, function->func_closure};
    Outcome outcome;
    if (binds_as_is(code, n, kwnames)) {
        outcome = answer((CodeState *)state.get(), view, &self->cache);
    } else {
        Bound bound(n_parameters(code));
        Binding binding = bound.bind(function, args, n, kwnames);
        if (binding == Binding::error) return nullptr;
        if (binding == Binding::refused) {
            auto *known = (CodeState *)state.get();
            return sample.done(call_plain(known, self->function, args, nargsf, kwnames, {}));
        }
        view.locals = bound.values;
        view.n_locals = bound.n;
        outcome = answer((CodeState *)state.get(), view, &self->cache);
    }
    auto *asked = (CodeState *)state.get();
    if (!outcome.plain) return sample.done(ended(asked, outcome, run_tails(outcome.result)));
    CallSample plain;
    if (!outcome.trial) plain.begin_plain(asked->clock);
    PyObject *given = call_plain(asked, self->function, args, nargsf, kwnames, outcome);
    // Reports tell what calls take that are not tried.
    if (outcome.trial) return ended(asked, outcome, given);
    return sample.done(plain.done(given));
}

// The code of a resume function as a function with this closure; a new reference.
PyObject *resume_function(Callable *self, PyObject *closure) {
    if (self->plain != nullptr && closure == nullptr) return Py_NewRef(self->plain);
    PyObject *function = make_function(self->state->code, self->globals, closure);
    if (function != nullptr && closure == nullptr) self->plain = Py_NewRef(function);
    return function;
}

// resume(closure or None, *locals)
PyObject *call_resume(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    auto *self = (Callable *)object;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    auto *code = (PyCodeObject *)self->state->code;
    if (n < 1 || kwnames != nullptr || !(args[0] == Py_None || PyTuple_Check(args[0])) ||
        code == nullptr || n - 1 != n_parameters(code)) {
        PyErr_SetString(PyExc_SystemError,
                        "graftjit: a resume function takes its closure and its locals");
        return nullptr;
    }
    PyObject *closure = args[0] == Py_None || code->co_nfreevars == 0 ? nullptr : args[0];
    Ref state(Py_NewRef((PyObject *)self->state)), kept(Py_NewRef((PyObject *)code));
    ResumeSample sample(((CodeState *)state.get())->clock);
    View view{args + 1, n - 1, self->globals, nullptr, closure};
    Outcome outcome{nullptr, true};
    if (!self->state->disabled && !is_watched(self->state, code))
        outcome =
            answer((CodeState *)state.get(), view, closure == nullptr ? &self->cache : nullptr);
    if (!outcome.plain) return outcome.result;
    Ref function(resume_function(self, closure));
    if (!function) return nullptr;
    return call_plain((CodeState *)state.get(), function.get(), args + 1, (size_t)(n - 1), nullptr,
                      outcome);
}

// --- attributes ----------------------------------------------------------------------------------

// Attributes that are read from and written to the function.
bool is_forwarded(PyObject *name) {
    static const char *const names[] = {"__name__",        "__qualname__", "__doc__",
                                        "__module__",      "__code__",     "__defaults__",
                                        "__kwdefaults__",  "__globals__",  "__closure__",
                                        "__annotations__", "__builtins__", "__type_params__"};
    if (PyUnicode_READ_CHAR(name, 0) != '_') return false;
    for (const char *text : names)
        if (PyUnicode_CompareWithASCIIString(name, text) == 0) return true;
    return false;
}

PyObject *callable_getattro(PyObject *object, PyObject *name) {
    auto *self = (Callable *)object;
    bool is_name = PyUnicode_Check(name) && PyUnicode_GET_LENGTH(name) > 0;
    if (self->function == Py_None || !is_name) return PyObject_GenericGetAttr(object, name);
    if (is_forwarded(name)) return PyObject_GetAttr(self->function, name);
    PyObject *found = PyObject_GenericGetAttr(object, name);
    if (found != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
    PyObject *own = ((PyFunctionObject *)self->function)->func_dict;
    PyObject *value = own == nullptr ? nullptr : PyDict_GetItemWithError(own, name);
    if (value == nullptr) return nullptr;
    PyErr_Clear();
    return Py_NewRef(value);
}

// Attributes are the function's: who holds the function finds them there too, and functools.wraps
// copies them. `__wrapped__` is written to the function as well, since wraps() writes it.
int callable_setattro(PyObject *object, PyObject *name, PyObject *value) {
    auto *self = (Callable *)object;
    if (self->function == Py_None || !PyUnicode_Check(name))
        return PyObject_GenericSetAttr(object, name, value);
    PyObject *law = _PyType_Lookup(Py_TYPE(object), name);
    bool own = law != nullptr && Py_TYPE(law)->tp_descr_set != nullptr &&
               PyUnicode_CompareWithASCIIString(name, "__wrapped__") != 0 &&
               !(PyUnicode_GET_LENGTH(name) > 0 && is_forwarded(name));
    return own ? PyObject_GenericSetAttr(object, name, value)
               : PyObject_SetAttr(self->function, name, value);
}

PyObject *callable_get_dict(Callable *self, void *) {
    return PyObject_GetAttrString(self->function, "__dict__");
}

int callable_set_dict(Callable *self, PyObject *value, void *) {
    return PyObject_SetAttrString(self->function, "__dict__", value);
}

PyObject *callable_descr_get(PyObject *self, PyObject *instance, PyObject *) {
    if (instance == nullptr || instance == Py_None) return Py_NewRef(self);
    return PyMethod_New(self, instance);
}

PyObject *callable_repr(Callable *self) {
    if (self->function == Py_None)
        return PyUnicode_FromFormat("<graftjit resume of %R>", self->state->code);
    return PyUnicode_FromFormat("<graftjit %R>", self->function);
}

// Like functions: copied by identity, pickled by name.
PyObject *callable_reduce(Callable *self, PyObject *) {
    if (self->function != Py_None) return PyObject_GetAttrString(self->function, "__qualname__");
    PyErr_SetString(PyExc_TypeError, "cannot pickle a graftjit resume function");
    return nullptr;
}

// --- the type ------------------------------------------------------------------------------------

bool check_arguments(PyObject *function, PyObject *state, bool resume, PyObject *globals) {
    if (!PyObject_TypeCheck(state, state_type)) {
        PyErr_SetString(PyExc_TypeError, "Callable: a CodeState expected");
        return false;
    }
    bool bare = resume && function == Py_None && PyDict_Check(globals);
    if (bare || PyFunction_Check(function)) return true;
    PyErr_Format(PyExc_TypeError, "Callable: a Python function expected, not %s",
                 Py_TYPE(function)->tp_name);
    return false;
}

PyObject *callable_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"function", "state", "resume", "globals", nullptr};
    PyObject *function, *state, *globals = Py_None;
    int resume = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|pO", (char **)names, &function, &state,
                                     &resume, &globals) ||
        !check_arguments(function, state, resume, globals))
        return nullptr;
    auto *self = (Callable *)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->vectorcall = resume ? call_resume : call_function;
    self->function = Py_NewRef(function);
    self->state = (CodeState *)Py_NewRef(state);
    if (PyDict_Check(globals))
        self->globals = Py_NewRef(globals);
    else
        self->globals = Py_NewRef(((PyFunctionObject *)function)->func_globals);
    return (PyObject *)self;
}

// Makes a Python subclass callable by vectorcall and bindable without a bound method, unless it
// overrides that.
PyObject *callable_init_subclass(PyObject *cls, PyObject *) {
    auto *type = (PyTypeObject *)cls;
    if (type->tp_call == PyVectorcall_Call) type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    if (type->tp_descr_get == callable_descr_get) type->tp_flags |= Py_TPFLAGS_METHOD_DESCRIPTOR;
    PyType_Modified(type);
    Py_RETURN_NONE;
}

int callable_traverse(Callable *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->function);
    Py_VISIT((PyObject *)self->state);
    Py_VISIT(self->globals);
    Py_VISIT(self->cache.entry);
    Py_VISIT(self->cache.function);
    Py_VISIT(self->plain);
    return 0;
}

// The function and the state stay until deallocation, since a finaliser may still call.
int callable_clear(Callable *self) {
    Py_CLEAR(self->cache.entry);
    Py_CLEAR(self->cache.function);
    Py_CLEAR(self->plain);
    return 0;
}

void callable_dealloc(Callable *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weak_references != nullptr) PyObject_ClearWeakRefs((PyObject *)self);
    callable_clear(self);
    Py_CLEAR(self->function);
    Py_CLEAR(self->state);
    Py_CLEAR(self->globals);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

PyObject *callable_get_state(Callable *self, void *) { return Py_NewRef((PyObject *)self->state); }

int callable_set_state(Callable *self, PyObject *state, void *) {
    if (state == nullptr || !PyObject_TypeCheck(state, state_type)) {
        PyErr_SetString(PyExc_TypeError, "Callable.state: a CodeState expected");
        return -1;
    }
    Py_SETREF(self->state, (CodeState *)Py_NewRef(state));
    return 0;
}

// Drops the cached entry and its function after the entry was removed.
PyObject *callable_forget(Callable *self, PyObject *) {
    Ref entry(self->cache.entry), function(self->cache.function);
    self->cache = {};
    Py_RETURN_NONE;
}

PyMethodDef callable_methods[] = {
    {"forget", (PyCFunction)callable_forget, METH_NOARGS, "let go of the last entry that was run"},
    {"__reduce__", (PyCFunction)callable_reduce, METH_NOARGS, nullptr},
    {"__init_subclass__", (PyCFunction)callable_init_subclass, METH_CLASS | METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef callable_getset[] = {
    {"state", (getter)callable_get_state, (setter)callable_set_state, "the CodeState", nullptr},
    {"__dict__", (getter)callable_get_dict, (setter)callable_set_dict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef callable_members[] = {
    {"__wrapped__", T_OBJECT_EX, offsetof(Callable, function), READONLY, "the Python function"},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Callable, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Callable, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot callable_slots[] = {
    {Py_tp_new, (void *)callable_new},
    {Py_tp_dealloc, (void *)callable_dealloc},
    {Py_tp_traverse, (void *)callable_traverse},
    {Py_tp_clear, (void *)callable_clear},
    {Py_tp_call, (void *)PyVectorcall_Call},
    {Py_tp_repr, (void *)callable_repr},
    {Py_tp_getattro, (void *)callable_getattro},
    {Py_tp_setattro, (void *)callable_setattro},
    {Py_tp_descr_get, (void *)callable_descr_get},
    {Py_tp_methods, callable_methods},
    {Py_tp_getset, callable_getset},
    {Py_tp_members, callable_members},
    {Py_tp_doc,
     (void *)"Callable(function, state, resume=False, globals=None): a function under graftjit"},
    {0, nullptr}};

PyType_Spec callable_spec = {"graftjit.runtime._native.Callable", sizeof(Callable), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE |
                                 Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                             callable_slots};

}  // namespace

int callable_init(PyObject *module) {
    callable_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &callable_spec, nullptr);
    return callable_type == nullptr ? -1 : PyModule_AddType(module, callable_type);
}
