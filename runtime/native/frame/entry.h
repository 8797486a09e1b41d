// Entry: a compiled answer for a code object, and the guards under which it is valid.
//
// kind "direct": a compiled program takes the inputs that the guard program gathers, and its
// outputs fill the tree of the result, without a Python frame. kind "code": a replacement code
// object runs in place of the frame. kind "plain": the original runs in plain Python. Dispatch
// makes entries from captures; code_state.cpp runs them.
#pragma once

#include "executor/sampling.h"
#include "frame/trials.h"
#include "guards/guard_program.h"

enum class Kind { direct, code, plain };

struct Tree;

struct Entry {
    PyObject_HEAD
    Kind kind;
    GuardProgram *guards;
    PyObject *target;
    Tree *tree;
    bool target_is_program;
    Py_ssize_t n_program_inputs;
    unsigned long long hits;
    unsigned long long trial_at;  // hits at which the next trial is due
    Trials *trials;               // null: it is never tried
    char slower;                  // than plain Python: its calls run as written
    Ring checked;  // seconds of successful checks in sampled calls
    char rerun;  // a failed direct run may be repeated in plain Python, since it changed nothing
    char extent;  // plain: the hook looks up frames inside
    // code: from so many hits on, Python is asked once for a better entry; 0: never
    unsigned long long hot_at;
    // direct, if the program assumes outcomes of branches: the entry that answers a call in which
    // another one occurs, the exception that says so, and how often it came
    PyObject *otherwise, *leaves;
    unsigned long long exits;
    PyObject *rows;
    PyObject *name;
    PyObject *data;
};

// The last function made from a code entry. A callable keeps it, which owns the globals and the
// closure anyway. An entry must not: it may live as long as a code object, through which the
// collector does not see.
struct FunctionCache {
    PyObject *entry = nullptr;
    PyObject *function = nullptr;
};

extern PyTypeObject *entry_type;

// The result of a direct entry for its (borrowed) guard inputs, or null with an exception. `ran` is
// set to true after the program has run; a later error comes from building the result.
PyObject *entry_run_direct(Entry *entry, PyObject *const *inputs, bool *ran);

// The result of a code entry for a call.
PyObject *entry_run_code(Entry *entry, const View &view, FunctionCache *cache);

// A function with this code; `closure` may be null. A new reference.
PyObject *make_function(PyObject *code, PyObject *globals, PyObject *closure);

int entry_init(PyObject *module);
