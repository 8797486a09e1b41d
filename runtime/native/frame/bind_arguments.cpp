#include "frame/bind_arguments.h"

#include "frame/dict_watch.h"

#include <algorithm>

Bound::Bound(Py_ssize_t n) : values(n <= SMALL ? small : new PyObject *[n]), n(n) {
    std::fill_n(values, n, nullptr);
}

Bound::~Bound() {
    for (Py_ssize_t i = 0; i < n; i++) Py_XDECREF(values[i]);
    if (values != small) delete[] values;
}

// Binds a keyword argument to the parameter of that name, or adds it to **kwargs.
Binding Bound::bind_keyword(PyCodeObject *code, PyObject *name, PyObject *value, PyObject *rest) {
    if (!PyUnicode_CheckExact(name)) return Binding::refused;
    Py_ssize_t n_named = code->co_argcount + code->co_kwonlyargcount;
    for (Py_ssize_t i = code->co_posonlyargcount; i < n_named; i++) {
        if (!same_constant(PyTuple_GET_ITEM(code->co_localsplusnames, i), name)) continue;
        if (values[i] != nullptr) return Binding::refused;
        values[i] = Py_NewRef(value);
        return Binding::bound;
    }
    if (rest == nullptr) return Binding::refused;
    return PyDict_SetItem(rest, name, value) < 0 ? Binding::error : Binding::bound;
}

Binding Bound::fill_defaults(PyFunctionObject *function, PyCodeObject *code) {
    PyObject *defaults = function->func_defaults, *kwdefaults = function->func_kwdefaults;
    Py_ssize_t n_positional = code->co_argcount,
               n_defaults = defaults == nullptr ? 0 : PyTuple_GET_SIZE(defaults);
    for (Py_ssize_t i = 0; i < n_positional; i++) {
        if (values[i] != nullptr) continue;
        Py_ssize_t at = i - (n_positional - n_defaults);
        if (at < 0) return Binding::refused;
        values[i] = Py_NewRef(PyTuple_GET_ITEM(defaults, at));
    }
    for (Py_ssize_t i = n_positional; i < n_positional + code->co_kwonlyargcount; i++) {
        if (values[i] != nullptr) continue;
        PyObject *name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
        PyObject *value =
            kwdefaults == nullptr ? nullptr : dict_find(kwdefaults, name, PyObject_Hash(name));
        if (value == nullptr) return Binding::refused;
        values[i] = Py_NewRef(value);
    }
    return Binding::bound;
}

Binding Bound::bind(PyFunctionObject *function, PyObject *const *args, Py_ssize_t n_args,
                    PyObject *kwnames) {
    auto *code = (PyCodeObject *)function->func_code;
    // Allocations below may run finalizers, and one may rebind the code.
    Ref kept(Py_NewRef((PyObject *)code));
    Py_ssize_t n_named = code->co_argcount + code->co_kwonlyargcount;
    bool takes_rest = (code->co_flags & CO_VARARGS) != 0,
         takes_keywords = (code->co_flags & CO_VARKEYWORDS) != 0;
    Py_ssize_t direct = std::min<Py_ssize_t>(n_args, code->co_argcount);
    for (Py_ssize_t i = 0; i < direct; i++) values[i] = Py_NewRef(args[i]);
    if (n_args > direct && !takes_rest) return Binding::refused;
    if (takes_rest) {
        PyObject *rest = values[n_named] = PyTuple_New(n_args - direct);
        if (rest == nullptr) return Binding::error;
        for (Py_ssize_t i = direct; i < n_args; i++)
            PyTuple_SET_ITEM(rest, i - direct, Py_NewRef(args[i]));
    }
    PyObject *keywords = nullptr;
    if (takes_keywords) {
        keywords = values[n_named + takes_rest] = PyDict_New();
        if (keywords == nullptr) return Binding::error;
        made_own_dict();
    }
    Py_ssize_t n_keywords = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t i = 0; i < n_keywords; i++) {
        Binding done = bind_keyword(code, PyTuple_GET_ITEM(kwnames, i), args[n_args + i], keywords);
        if (done != Binding::bound) return done;
    }
    return fill_defaults(function, code);
}
