#include "frame/objects.h"

#include <algorithm>
#include <cstring>

KnownTypes known;

namespace {

// The layout of types.MappingProxyType, which has no C accessor for the wrapped mapping.
struct MappingProxy {
    PyObject_HEAD
    PyObject *mapping;
};

Py_ssize_t table_index(const PyDictKeysObject *keys, size_t i) {
    const char *indices = keys->dk_indices;
    int log_size = keys->dk_log2_size;
    if (log_size < 8) return ((const int8_t *)indices)[i];
    if (log_size < 16) return ((const int16_t *)indices)[i];
    if (log_size < 32) return ((const int32_t *)indices)[i];
    return (Py_ssize_t)((const int64_t *)indices)[i];
}

bool same_text(PyObject *left, PyObject *right) {
    if (left == right) return true;
    Py_ssize_t length = PyUnicode_GET_LENGTH(left);
    if (length != PyUnicode_GET_LENGTH(right)) return false;
    if (PyUnicode_KIND(left) != PyUnicode_KIND(right)) return false;
    return memcmp(PyUnicode_DATA(left), PyUnicode_DATA(right), length * PyUnicode_KIND(left)) == 0;
}

// What decides hash and equality of a key: the methods of one builtin type, or others.
enum class Compares { by_text, by_number, by_bytes, by_items, by_device, by_identity, otherwise };

bool compares_as(PyTypeObject *type, const PyTypeObject &base) {
    return type->tp_richcompare == base.tp_richcompare && type->tp_hash == base.tp_hash;
}

Compares comparison_of(PyObject *key) {
    PyTypeObject *type = Py_TYPE(key);
    if (compares_as(type, PyUnicode_Type)) return Compares::by_text;
    for (const PyTypeObject *number : {&PyLong_Type, &PyFloat_Type, &PyComplex_Type})
        if (compares_as(type, *number)) return Compares::by_number;
    if (compares_as(type, PyBytes_Type)) return Compares::by_bytes;
    if (compares_as(type, PyTuple_Type)) return Compares::by_items;
    if (type == known.device) return Compares::by_device;
    // None has a hash of its own since Python 3.12.
    bool by_identity = key == Py_None || compares_as(type, PyBaseObject_Type);
    return by_identity ? Compares::by_identity : Compares::otherwise;
}

enum class Equality { equal, different, unknown };

Equality equal_keys(PyObject *left, PyObject *right);

// Python compares the items of two tuples in order, up to the first pair that differs.
Equality equal_items(PyObject *left, PyObject *right) {
    Py_ssize_t n = PyTuple_GET_SIZE(left), m = PyTuple_GET_SIZE(right);
    for (Py_ssize_t i = 0; i < std::min(n, m); i++) {
        Equality each = equal_keys(PyTuple_GET_ITEM(left, i), PyTuple_GET_ITEM(right, i));
        if (each != Equality::equal) return each;
    }
    return n == m ? Equality::equal : Equality::different;
}

// Whether a dict takes two keys of equal hash for one (1 == True == 1.0, as in Python); unknown
// where a method of another class than the builtin ones decides.
Equality equal_keys(PyObject *left, PyObject *right) {
    if (left == right) return Equality::equal;
    Compares how = comparison_of(left), other = comparison_of(right);
    if (how == Compares::otherwise || other == Compares::otherwise) return Equality::unknown;
    if (how != other || how == Compares::by_identity) return Equality::different;
    if (how == Compares::by_items) return equal_items(left, right);
    bool equal;
    if (how == Compares::by_text) {
        equal = same_text(left, right);
    } else {
        int answer = PyObject_RichCompareBool(left, right, Py_EQ);
        if (answer < 0) PyErr_Clear();
        equal = answer > 0;
    }
    return equal ? Equality::equal : Equality::different;
}

constexpr Py_ssize_t ABSENT = -1, UNKNOWN = -2;

// Position of `key` in a key table's entries, ABSENT, or UNKNOWN if only user code could decide.
Py_ssize_t find_in_keys(PyDictKeysObject *keys, PyObject *key, Py_hash_t hash) {
    bool unicode = DK_IS_UNICODE(keys);
    if (unicode && !PyUnicode_Check(key)) return ABSENT;
    size_t mask = ((size_t)1 << keys->dk_log2_size) - 1;
    size_t perturb = (size_t)hash, i = (size_t)hash & mask;
    for (;;) {
        Py_ssize_t at = table_index(keys, i);
        if (at == DKIX_EMPTY) return ABSENT;
        if (at >= 0 && unicode) {
            PyObject *found = DK_UNICODE_ENTRIES(keys)[at].me_key;
            if (found == key) return at;
            if (((PyASCIIObject *)found)->hash == hash && same_text(found, key)) return at;
        } else if (at >= 0) {
            PyDictKeyEntry *entry = &DK_ENTRIES(keys)[at];
            if (entry->me_key == key) return at;
            if (entry->me_hash == hash) {
                Equality found = equal_keys(entry->me_key, key);
                if (found == Equality::equal) return at;
                if (found == Equality::unknown) return UNKNOWN;
            }
        }
        perturb >>= 5;  // PERTURB_SHIFT
        i = (i * 5 + perturb + 1) & mask;
    }
}

bool same_items(PyObject *left, PyObject *right) {
    Py_ssize_t length = PyTuple_GET_SIZE(left);
    if (length != PyTuple_GET_SIZE(right)) return false;
    for (Py_ssize_t i = 0; i < length; i++)
        if (!same_constant(PyTuple_GET_ITEM(left, i), PyTuple_GET_ITEM(right, i))) return false;
    return true;
}

// Whether each element of a set is in the other one. Hashes are stored, so most pairs need one
// comparison.
bool same_elements(PyObject *left, PyObject *right) {
    auto *a = (PySetObject *)left, *b = (PySetObject *)right;
    if (a->used != b->used) return false;
    for (Py_ssize_t i = 0; i <= a->mask; i++) {
        setentry *element = &a->table[i];
        if (element->key == nullptr || element->hash == -1) continue;  // -1 marks a removed element
        bool found = false;
        for (Py_ssize_t j = 0; j <= b->mask && !found; j++)
            found = b->table[j].key != nullptr && b->table[j].hash == element->hash &&
                    same_constant(b->table[j].key, element->key);
        if (!found) return false;
    }
    return true;
}

bool is_array_scalar(PyTypeObject *type) {
    Py_ssize_t count = known.scalars != nullptr ? PyTuple_GET_SIZE(known.scalars) : 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (PyTuple_GET_ITEM(known.scalars, i) == (PyObject *)type) return true;
    return false;
}

// Compares two numpy scalars of one type by their bytes, which they expose as a buffer.
bool same_bytes(PyObject *left, PyObject *right) {
    Py_buffer a, b;
    if (PyObject_GetBuffer(left, &a, PyBUF_SIMPLE) < 0) {
        PyErr_Clear();
        return false;
    }
    bool same = PyObject_GetBuffer(right, &b, PyBUF_SIMPLE) == 0;
    if (same) {
        same = a.len == b.len && memcmp(a.buf, b.buf, a.len) == 0;
        PyBuffer_Release(&b);
    } else {
        PyErr_Clear();
    }
    PyBuffer_Release(&a);
    return same;
}

bool same_bits(double left, double right) { return memcmp(&left, &right, sizeof left) == 0; }

}  // namespace

bool hashes_safely(PyObject *key) {
    Compares how = comparison_of(key);
    if (how != Compares::by_items) return how != Compares::otherwise;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++)
        if (!hashes_safely(PyTuple_GET_ITEM(key, i))) return false;
    return true;
}

PyObject *dict_part(PyObject *value) {
    if (PyDict_Check(value)) return value;
    if (Py_TYPE(value) == &PyDictProxy_Type) {
        PyObject *inner = ((MappingProxy *)value)->mapping;
        return PyDict_Check(inner) ? inner : nullptr;
    }
    return nullptr;
}

PyObject *dict_find(PyObject *dict, PyObject *key, Py_hash_t hash) {
    auto *table = (PyDictObject *)dict;
    Py_ssize_t at = find_in_keys(table->ma_keys, key, hash);
    if (at < 0) return nullptr;
    if (table->ma_values != nullptr) return values_array(table->ma_values)[at];
    return DK_IS_UNICODE(table->ma_keys) ? DK_UNICODE_ENTRIES(table->ma_keys)[at].me_value
                                         : DK_ENTRIES(table->ma_keys)[at].me_value;
}

Py_ssize_t name_in_keys(PyDictKeysObject *keys, PyObject *name, Py_hash_t hash) {
    return find_in_keys(keys, name, hash);
}

bool dict_lacks(PyObject *dict, PyObject *key, Py_hash_t hash) {
    auto *table = (PyDictObject *)dict;
    Py_ssize_t at = find_in_keys(table->ma_keys, key, hash);
    if (at >= 0 && table->ma_values != nullptr)
        return values_array(table->ma_values)[at] == nullptr;
    return at == ABSENT;
}

bool dict_lacks_any(PyObject *dict, PyObject *key, Py_hash_t hash) {
    if (hashes_safely(key)) return dict_lacks(dict, key, hash);
    PyObject *found;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict, &position, &found, nullptr))
        if (comparison_of(found) == Compares::otherwise) return false;
    return true;
}

PyObject *dict_find_any(PyObject *dict, PyObject *key, Py_hash_t hash) {
    if (hashes_safely(key)) return dict_find(dict, key, hash);
    PyObject *found, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict, &position, &found, &value))
        if (same_constant(found, key)) return value;
    return nullptr;
}

PyObject *instance_attribute(PyObject *object, PyObject *name, Py_hash_t hash) {
    if (PyType_Check(object)) {
        Ref own(class_dict((PyTypeObject *)object));
        return own ? dict_find(own.get(), name, hash) : nullptr;
    }
    if (PyDictValues *values = inline_values(object)) {
        PyDictKeysObject *keys = ((PyHeapTypeObject *)Py_TYPE(object))->ht_cached_keys;
        Py_ssize_t at = find_in_keys(keys, name, hash);
        return at < 0 ? nullptr : values_array(values)[at];
    }
    PyObject *own = plain_dict(object);
    return own != nullptr && PyDict_Check(own) ? dict_find(own, name, hash) : nullptr;
}

PyObject *instance_dict(PyObject *object) {
    if (PyType_Check(object)) {
        Ref own(class_dict((PyTypeObject *)object));
        PyObject *proxy = own ? PyDictProxy_New(own.get()) : nullptr;
        if (proxy == nullptr) PyErr_Clear();
        return proxy;
    }
    PyObject *own = PyObject_GenericGetDict(object, nullptr);
    if (own == nullptr) PyErr_Clear();
    return own;
}

// Ranges that are equal may have other bounds: range(0, 3, 2) == range(0, 4, 2).
static bool same_range(PyObject *left, PyObject *right) {
    for (const char *name : {"start", "stop", "step"}) {
        Ref a(PyObject_GetAttrString(left, name)), b(PyObject_GetAttrString(right, name));
        if (!a || !b) PyErr_Clear();
        if (!a || !b || !same_constant(a.get(), b.get())) return false;
    }
    return true;
}

bool same_constant(PyObject *left, PyObject *right) {
    if (left == right) return true;
    PyTypeObject *type = Py_TYPE(left);
    if (type != Py_TYPE(right)) return false;
    if (type == &PyUnicode_Type) return same_text(left, right);
    if (type == &PyLong_Type || type == &PyBytes_Type ||
        (type == known.device && type != nullptr)) {
        int equal = PyObject_RichCompareBool(left, right, Py_EQ);
        if (equal < 0) PyErr_Clear();
        return equal > 0;
    }
    if (type == &PyFloat_Type) return same_bits(PyFloat_AS_DOUBLE(left), PyFloat_AS_DOUBLE(right));
    if (type == &PyComplex_Type) {
        Py_complex a = ((PyComplexObject *)left)->cval, b = ((PyComplexObject *)right)->cval;
        return same_bits(a.real, b.real) && same_bits(a.imag, b.imag);
    }
    if (type == &PyTuple_Type || type == known.size) return same_items(left, right);
    if (type == &PyFrozenSet_Type) return same_elements(left, right);
    if (type == &PySlice_Type) {
        auto *a = (PySliceObject *)left, *b = (PySliceObject *)right;
        return same_constant(a->start, b->start) && same_constant(a->stop, b->stop) &&
               same_constant(a->step, b->step);
    }
    if (type == &PyRange_Type) return same_range(left, right);
    return is_array_scalar(type) && same_bytes(left, right);
}

Py_ssize_t builtin_length(PyObject *value) {
    if (PyDict_Check(value)) return ((PyDictObject *)value)->ma_used;
    if (PyList_Check(value) || PyTuple_Check(value) || PyBytes_Check(value) ||
        PyByteArray_Check(value))
        return Py_SIZE(value);
    if (PyAnySet_Check(value)) return ((PySetObject *)value)->used;
    if (PyUnicode_Check(value)) return PyUnicode_GET_LENGTH(value);
    if (known.deque != nullptr && PyObject_TypeCheck(value, known.deque)) return Py_SIZE(value);
    if (PyObject *inner = dict_part(value)) return ((PyDictObject *)inner)->ma_used;
    if (Py_TYPE(value) == &PyRange_Type) {
        Py_ssize_t length = PyRange_Type.tp_as_sequence->sq_length(value);
        if (length < 0) PyErr_Clear();
        return length;
    }
    return -1;
}
