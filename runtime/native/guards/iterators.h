// What iterators of containers go over, and how far they are. CPython's own types, read by layout
// (Objects/listobject.c, tupleobject.c, dictobject.c, enumobject.c, Python/bltinmodule.c).
#pragma once

#include "frame/cpython.h"

// The n-th object that an iterator goes over: the container, an enumerate's iterator, one of a
// zip's. Borrowed; null for other types and after the end.
PyObject *iterated(PyObject *iterator, Py_ssize_t n);

// How many steps an iterator has taken, the number of a zip's iterators, the next number of an
// enumerate; -1 for other types, after the end, and for a dict that has changed meanwhile.
Py_ssize_t iterator_position(PyObject *iterator);

int iterators_init(PyObject *module);
