// Reading objects without running user code: dict tables, instance dicts, constants by exact type and bits.
//
// No function here calls `__eq__`, `__hash__`, a property or any other Python-level code of a user's class,
// and none leaves an exception set. Results are borrowed references unless told otherwise. Used by guards.
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

// Types that are known by name only after torch is imported; set once by runtime.guard_program.
struct KnownTypes {
    PyTypeObject *size = nullptr;    // torch.Size: compared as a tuple
    PyTypeObject *device = nullptr;  // torch.device: compared by its own C code
    PyObject *scalars = nullptr;     // tuple of numpy's scalar types: compared by their bytes
    PyTypeObject *deque = nullptr;
    PyTypeObject *partial = nullptr;
    PyObject *abc_token = nullptr;  // _abc.get_cache_token
};
extern KnownTypes known;

// dict part of a dict (or subclass), the dict inside a mapping proxy, else null.
PyObject *dict_part(PyObject *value);

// dict[key] by Python's meaning of equal keys, asking builtin types only; `hash` is hash(key).
PyObject *dict_find(PyObject *dict, PyObject *key, Py_hash_t hash);

// Place of a str key in a table of str keys; -1 if it is not there.
Py_ssize_t name_in_keys(PyDictKeysObject *keys, PyObject *name, Py_hash_t hash);

// Whether the dict surely lacks the key: neither found, nor a key of equal hash there whose __eq__ is a user's.
bool dict_lacks(PyObject *dict, PyObject *key, Py_hash_t hash);
bool dict_lacks_any(PyObject *dict, PyObject *key, Py_hash_t hash);

// As dict_find; a key whose hash is not a builtin type's own is found by `same_constant`, one by one.
PyObject *dict_find_any(PyObject *dict, PyObject *key, Py_hash_t hash);

// Whether hash and equality of this key are builtin code.
bool hashes_safely(PyObject *key);

// The value of `name` in the instance dict (a class's own dict for a class); never makes a dict.
PyObject *instance_attribute(PyObject *object, PyObject *name, Py_hash_t hash);

// The instance dict itself, a mapping proxy for a class; a new reference, or null.
PyObject *instance_dict(PyObject *object);

// Same exact type and same value for constants (floats by bits), else identity.
bool same_constant(PyObject *left, PyObject *right);

// len() of the builtin container part; -1 where there is none.
Py_ssize_t builtin_length(PyObject *value);
