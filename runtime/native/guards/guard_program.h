// The guard program: an entry's rows compiled to loads and checks over registers.
//
// runtime.guards.compiler.compile_rows makes it from rows and sources, a row as one or more
// instructions; frame/code_state.cpp runs it at every call. Each source is one register, loaded
// once, just before the first row that needs it. A failed load fails the row that needed it. No
// user code runs, and no exception is left set. Values read from the heap are remembered and are
// not read again while nothing has changed: see heap_guards.h.
#pragma once

#include "frame/objects.h"

#include <memory>
#include <vector>

// The results of value programs in one call (value.h). `number` is null if one raised.
struct ValueMemo {
    struct Known {
        Ref program;
        std::vector<PyObject *> inputs;
        std::vector<Ref> held;  // the inputs
        Ref number;
    };
    std::vector<Known> known;
};

// The input of a guard program: one call of one code object.
struct View {
    PyObject *const *locals;  // bound arguments, in co_varnames order
    Py_ssize_t n_locals;
    PyObject *globals;
    PyObject *builtins;  // null: found through globals
    PyObject *closure;   // tuple, or null
    mutable std::unique_ptr<ValueMemo> values = nullptr;  // none until a "value" row runs
};

struct Instruction;
struct Heap;

struct GuardProgram {
    PyObject_HEAD
    std::vector<Instruction> *code;
    std::vector<int> *inputs;  // registers of the inputs of a direct entry's program
    int n_registers;
    int n_owned;  // number of loads that return a new reference
    int n_rows;
    Heap *heap;  // what is remembered of the heap (heap_guards.h)
};

extern PyTypeObject *guard_program_type;

// -1 if all rows hold; then `inputs` (if not null) has new references. Else the index of a row that
// failed, with `exact` the first one.
int guards_check(GuardProgram *program, const View &view, PyObject **inputs, bool exact);

inline Py_ssize_t guards_n_inputs(const GuardProgram *program) {
    return (Py_ssize_t)program->inputs->size();
}

int guards_init(PyObject *module);
