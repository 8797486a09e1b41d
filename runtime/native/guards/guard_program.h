// The guard program: an entry's rows compiled to loads and checks over registers.
//
// Made by runtime.guard_program.compile_rows from rows and sources; run on every call by callable.cpp and
// hook.cpp. Each source is one register, loaded once, just before the first row that needs it. A load that cannot
// be done fails the row it was for. No user code runs, no exception is left behind. What was read of the heap is
// remembered, and not read again as long as nothing of it has changed: see heap.h.
#pragma once

#include "frame/objects.h"

#include <memory>
#include <vector>

// What programs of "value" rows gave in one call (value.h). `number` is null where one raised.
struct ValueMemo {
    struct Known {
        Ref program;
        std::vector<PyObject *> inputs;
        std::vector<Ref> held;  // the inputs
        Ref number;
    };
    std::vector<Known> known;
};

// What a guard program looks at: one call of one code object.
struct View {
    PyObject *const *locals;  // arguments as bound, in co_varnames order
    Py_ssize_t n_locals;
    PyObject *globals;
    PyObject *builtins;  // null: found through globals
    PyObject *closure;   // tuple, or null
    mutable std::unique_ptr<ValueMemo> values = nullptr;  // none until a "value" row is asked
};

struct Instruction;
struct Heap;

struct GuardProgram {
    PyObject_HEAD
    std::vector<Instruction> *code;
    std::vector<int> *inputs;  // registers that a direct entry's program takes
    int n_registers;
    int n_owned;  // loads whose result is a new reference
    int n_rows;
    Heap *heap;  // what is remembered of the heap (heap.h)
};

extern PyTypeObject *guard_program_type;

// -1 if all rows hold, and then `inputs` (if not null) has new references; else the index of a row that failed, the first
// one of all if `exact`.
int guards_check(GuardProgram *program, const View &view, PyObject **inputs, bool exact);

inline Py_ssize_t guards_n_inputs(const GuardProgram *program) { return (Py_ssize_t)program->inputs->size(); }

int guards_init(PyObject *module);
