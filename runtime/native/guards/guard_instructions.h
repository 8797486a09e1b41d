// The instructions of a guard program. guard_program.cpp runs them, guard_program_type.cpp makes
// them.
#pragma once

#include "guards/guard_program.h"

#include <utility>

enum Op : int {
    // loads
    LOCAL,
    GLOBAL,
    GLOBALS,
    BUILTIN,
    CELL,
    CONTEXT,
    CONST,
    CONTENTS,
    REFERENT,
    TYPE,
    ATTR,
    DICT,
    CLASS_ATTR,
    MRO_ATTR,
    SLOT,
    ITEM,
    KEY,
    MEMBER,
    GRAD,
    ITERATED,
    // checks
    IS_TYPE,
    IS,
    EQUALS,
    LEN,
    KEYS,
    SET,
    ELEMENT,
    NO_ELEMENT,
    NO_ATTR,
    NO_ITEM,
    NO_GLOBAL,
    NO_CLASS_ATTR,
    NO_MRO_ATTR,
    MRO,
    TENSOR,
    SAME,
    DISTINCT,
    OWN_DICT,
    HISTORY,
    UNHOOKED,
    STATE,
    UNBOUND_CELL,
    ABC,
    UNHANDLED,
    NESTED,
    DEVICE,
    POSITION,
    NUMBER,
    RELATION,
    VALUE,
};

// One load or check. `source` and `other` are registers; `key` is the constant of the operation.
struct Instruction {
    int op;
    int row;
    int into = -1;
    int source = -1;
    int other = -1;
    Py_ssize_t number = 0;
    Py_hash_t hash = 0;
    PyObject *key = nullptr;
    bool weak = false;  // `key` is a runtime.guards.weak_ref.Weak, and the constant is its referent
    void *record = nullptr;
    std::vector<int> *registers = nullptr;
};

extern PyTypeObject *weak_type;  // runtime.guards.weak_ref.Weak

// Whether it is a weak reference in place of its referent, not a reference of the program's.
inline bool is_weak(PyObject *key) { return Py_TYPE(key) == weak_type; }

// The constant of an operation; null if it is gone.
inline PyObject *given(const Instruction &at) { return at.weak ? referent(at.key) : at.key; }

// The elements of an expected set, sorted by hash.
using Elements = std::vector<std::pair<Py_hash_t, PyObject *>>;
