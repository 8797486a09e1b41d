// Binds call arguments to a code object's parameters, as the interpreter does.
//
// The result is the locals vector: values of co_varnames[:n_args], *args as a tuple, **kwargs as a
// dict. Cases that raise TypeError are left to Python: the caller then calls the plain function
// with the same arguments.
#pragma once

#include "frame/objects.h"

inline Py_ssize_t n_parameters(const PyCodeObject *code) {
    return code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
           ((code->co_flags & CO_VARKEYWORDS) != 0);
}

// Whether the positional arguments are exactly the parameters, so that the argument array is the
// locals vector.
inline bool binds_as_is(const PyCodeObject *code, Py_ssize_t n_positional, PyObject *kwnames) {
    return kwnames == nullptr && n_positional == code->co_argcount &&
           code->co_kwonlyargcount == 0 && (code->co_flags & (CO_VARARGS | CO_VARKEYWORDS)) == 0;
}

enum class Binding { bound, refused, error };

// A locals vector that owns its references.
class Bound {
  public:
    explicit Bound(Py_ssize_t n);
    Bound(const Bound &) = delete;
    ~Bound();
    Binding bind(PyFunctionObject *function, PyObject *const *args, Py_ssize_t n_args,
                 PyObject *kwnames);
    PyObject **values;
    Py_ssize_t n;

  private:
    Binding bind_keyword(PyCodeObject *code, PyObject *name, PyObject *value, PyObject *rest);
    Binding fill_defaults(PyFunctionObject *function, PyCodeObject *code);
    static constexpr Py_ssize_t SMALL = 24;
    PyObject *small[SMALL];
};
