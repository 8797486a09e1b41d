// An Entry: one compiled answer for a code object, and the guards under which it holds.
//
// kind "direct": inputs gathered by the guard program go to a compiled program, its outputs into the result's
// tree; no Python frame. kind "code": a replacement code object runs in the frame's place. kind "plain": the
// original runs in plain Python. Made by capture (through runtime.frames), run by state.cpp.
#pragma once

#include "executor/sampling.h"
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
    Ring checked;  // seconds of checks that held, in sampled calls
    char rerun;   // a failed direct run may be repeated in plain Python: it has changed nothing
    char extent;  // plain: frames inside are looked up
    PyObject *rows;
    PyObject *name;
    PyObject *data;
};

// The last function made of a code entry; kept by a callable, which owns the globals and the closure anyway. An
// entry must not: it may live as long as a code object does, and the collector does not see through those.
struct FunctionCache {
    PyObject *entry = nullptr;
    PyObject *function = nullptr;
};

extern PyTypeObject *entry_type;

// The result of a direct entry over its guard inputs (borrowed), or null with an exception.
// `ran`: set to true when the program has run; what fails then is the making of the result.
PyObject *entry_run_direct(Entry *entry, PyObject *const *inputs, bool *ran);

// The result of a code entry over a call.
PyObject *entry_run_code(Entry *entry, const View &view, FunctionCache *cache);

// A function of this code; `closure` may be null. A new reference.
PyObject *make_function(PyObject *code, PyObject *globals, PyObject *closure);

int entry_init(PyObject *module);
