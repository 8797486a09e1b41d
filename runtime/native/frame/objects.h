// Reads objects without running user code: dict tables, instance dicts, constants by exact type and
// bits.
//
// No function here calls `__eq__`, `__hash__`, a property or other Python code of a user's class,
// and none leaves an exception set. Results are borrowed references unless stated otherwise. Used
// by guards.
#pragma once

#include "frame/cpython.h"

#include <utility>

// An owned reference that is dropped at the end of its scope.
class Ref {
  public:
    Ref() = default;
    explicit Ref(PyObject *owned) : object(owned) {}
    Ref(const Ref &) = delete;
    Ref(Ref &&other) noexcept : object(std::exchange(other.object, nullptr)) {}
    Ref &operator=(Ref &&other) noexcept {
        std::swap(object, other.object);
        return *this;
    }
    ~Ref() { Py_XDECREF(object); }
    PyObject *get() const { return object; }
    PyObject *release() { return std::exchange(object, nullptr); }
    explicit operator bool() const { return object != nullptr; }

  private:
    PyObject *object = nullptr;
};

// Types that are available only after torch is imported; set once by runtime.guards.compiler.
struct KnownTypes {
    PyTypeObject *size = nullptr;    // torch.Size: compared as a tuple
    PyTypeObject *device = nullptr;  // torch.device: compared by its own C code
    PyObject *scalars = nullptr;     // tuple of numpy's scalar types: compared by their bytes
    PyTypeObject *deque = nullptr;
    PyTypeObject *partial = nullptr;
    PyObject *abc_token = nullptr;  // _abc.get_cache_token
};
extern KnownTypes known;

// The dict part of a dict (or subclass), the dict in a mapping proxy, else null.
PyObject *dict_part(PyObject *value);

// dict[key], comparing keys as Python does, but only by code of builtin types; `hash` is hash(key).
PyObject *dict_find(PyObject *dict, PyObject *key, Py_hash_t hash);

// The position of a str key in a table of str keys; -1 if it is missing.
Py_ssize_t name_in_keys(PyDictKeysObject *keys, PyObject *name, Py_hash_t hash);

// Whether the dict certainly lacks the key: it was not found, and no key of equal hash compares by
// another class's __eq__ than a builtin one's. `dict_lacks_any` takes keys without a builtin hash.
bool dict_lacks(PyObject *dict, PyObject *key, Py_hash_t hash);
bool dict_lacks_any(PyObject *dict, PyObject *key, Py_hash_t hash);

// Like dict_find. A key without a builtin hash is searched linearly with `same_constant`.
PyObject *dict_find_any(PyObject *dict, PyObject *key, Py_hash_t hash);

// Whether hash and equality of this key, and of a tuple's items, are builtin code.
bool hashes_safely(PyObject *key);

// The value of `name` in the instance dict (for a class, in its own dict). Never creates a dict.
PyObject *instance_attribute(PyObject *object, PyObject *name, Py_hash_t hash);

// The instance dict itself, for a class a mapping proxy; a new reference, or null.
PyObject *instance_dict(PyObject *object);

// Whether two constants have the same exact type and value (floats by bits); identity for others.
bool same_constant(PyObject *left, PyObject *right);

// len() by the builtin container type; -1 if it is no such container.
Py_ssize_t builtin_length(PyObject *value);
