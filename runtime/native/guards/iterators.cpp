#include "guards/iterators.h"

namespace {

struct SequenceIterator {
    PyObject_HEAD
    Py_ssize_t index;
    PyObject *sequence;
};

struct DictIterator {
    PyObject_HEAD
    PyDictObject *dict;
    Py_ssize_t used;
    Py_ssize_t position;
    PyObject *result;
    Py_ssize_t left;
};

struct Enumerate {
    PyObject_HEAD
    Py_ssize_t index;
    PyObject *iterator;
    PyObject *result;
    PyObject *long_index;
};

struct Zip {
    PyObject_HEAD
    Py_ssize_t size;
    PyObject *iterators;
    PyObject *result;
    int strict;
};

bool is_dict_iterator(PyObject *it) {
    return Py_IS_TYPE(it, &PyDictIterKey_Type) || Py_IS_TYPE(it, &PyDictIterValue_Type) ||
           Py_IS_TYPE(it, &PyDictIterItem_Type);
}

bool is_sequence_iterator(PyObject *it) {
    return Py_IS_TYPE(it, &PyListIter_Type) || Py_IS_TYPE(it, &PyTupleIter_Type);
}

// The entries behind the iterator's place, if the dict has had the same size all the time.
Py_ssize_t dict_position(const DictIterator *it) {
    if (it->dict == nullptr || it->used != it->dict->ma_used) return -1;
    Py_ssize_t at = it->position, entries = 0;
    while (PyDict_Next((PyObject *)it->dict, &at, nullptr, nullptr)) entries++;
    return entries == it->left ? it->used - it->left : -1;
}

PyObject *iterated_method(PyObject *, PyObject *args) {
    PyObject *iterator;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "On", &iterator, &n)) return nullptr;
    PyObject *found = iterated(iterator, n);
    return found == nullptr ? PyTuple_New(0) : PyTuple_Pack(1, found);
}

PyObject *position_method(PyObject *, PyObject *iterator) {
    return PyLong_FromSsize_t(iterator_position(iterator));
}

PyMethodDef functions[] = {
    {"iterated", iterated_method, METH_VARARGS,
     "iterated(iterator, n) -> (the n-th object that it goes over,), or () if there is none"},
    {"iterator_position", position_method, METH_O,
     "iterator_position(iterator) -> how far it is, or -1 if that is not known"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject *iterated(PyObject *it, Py_ssize_t n) {
    if (Py_IS_TYPE(it, &PyZip_Type)) {
        PyObject *all = ((Zip *)it)->iterators;
        return all != nullptr && n >= 0 && n < PyTuple_GET_SIZE(all) ? PyTuple_GET_ITEM(all, n)
                                                                   : nullptr;
    }
    if (n != 0) return nullptr;
    if (is_sequence_iterator(it)) return ((SequenceIterator *)it)->sequence;
    if (is_dict_iterator(it)) return (PyObject *)((DictIterator *)it)->dict;
    return Py_IS_TYPE(it, &PyEnum_Type) ? ((Enumerate *)it)->iterator : nullptr;
}

Py_ssize_t iterator_position(PyObject *it) {
    if (is_sequence_iterator(it)) {
        auto *self = (SequenceIterator *)it;
        return self->sequence == nullptr ? -1 : self->index;
    }
    if (is_dict_iterator(it)) return dict_position((DictIterator *)it);
    if (Py_IS_TYPE(it, &PyZip_Type)) return ((Zip *)it)->strict ? -1 : ((Zip *)it)->size;
    if (!Py_IS_TYPE(it, &PyEnum_Type)) return -1;
    auto *self = (Enumerate *)it;
    return self->long_index == nullptr || self->index < PY_SSIZE_T_MAX ? self->index : -1;
}

int iterators_init(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
