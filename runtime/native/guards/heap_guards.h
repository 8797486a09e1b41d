// The heap part of a guard program: what it has read, remembered so that "nothing changed" is quick to see.
//
// A program's operations are of three kinds. Those about arguments and interpreter state run at each call. The others
// read the heap: attributes, globals, classes, containers. After a run in which all rows held, their outcome is kept as
// an `Armed`: the values found, and what would tell that one of them could be another now: words of memory in the order of
// the paths, dicts under watch (watch.h), traces of tensors. While none of these differs the rows hold. What has no
// such sign is run at each call as well ("loose"). If one differs the rows decide, and the outcome is remembered again.
#pragma once

#include "guards/guard_program.h"
#include "frame/class_watch.h"
#include "tensors/tensor_trace.h"
#include "frame/dict_watch.h"

#include <memory>

// One call's registers and references; guards.cpp runs operations over it.
struct Run {
    const View &view;
    PyObject **registers;
    PyObject **owned;
    int n_owned = 0;

    // Keeps a new reference until the end of the run.
    PyObject *keep(PyObject *fresh) {
        if (fresh == nullptr)
            PyErr_Clear();
        else
            owned[n_owned++] = fresh;
        return fresh;
    }
};

// A word that was read on the way to a value. Addresses are good while all words before hold.
struct Word {
    const uintptr_t *at;
    uintptr_t was;
};

// Where paths into the heap begin: a register that each call fills, or the class of its value.
struct Root {
    enum Kind : char { globals, builtins, cell, value, type } kind;
    int number = 0;  // of the cell or register
    int local = -1;  // the argument that it comes from
    int strangers = 0;              // runs in a row that brought another object
    uintptr_t recent[8] = {};       // objects of past runs
    bool operator==(const Root &other) const { return kind == other.kind && number == other.number; }
};

struct Armed {
    std::vector<uintptr_t> roots;
    std::vector<PyObject *> registers;  // borrowed: alive while the words hold
    std::vector<PyObject *> inputs;     // null: filled by this call
    std::vector<Word> words;       // compared at each call
    std::vector<Word> all;         // with those that change only if something is reassigned (reassigned.h)
    Reassigned reassigned;         // when all of them held
    TensorTraces tensors;
    std::vector<int> loose;        // operations that run at each call
    std::vector<int> loose_reads;  // registers that they read
    std::vector<PyObject *> pins;  // constants at addresses that words name, and weak references to classes
    WatchFlag flag;
#if !PY312
    std::vector<Word> versions;  // `words` with the versions of dicts between them, which `all` has too
    uint64_t clock = 0;          // the counter of versions when all of them held
#endif
    unsigned hits = 0;

    ~Armed();
};

// The parts of a program and what is remembered of past runs.
struct Heap {
    std::vector<int> always, rest;  // operations by kind
    std::vector<int> values;        // "value" rows, which run when all others hold
    size_t n_arguments = 0;         // the first of `always`; after them come those about the thread
    std::vector<char> each_call;    // by register: filled by `always`
    std::vector<char> fresh;        // by local: another object at each call, so nothing is remembered of it
    std::vector<Root> roots;
    std::vector<std::unique_ptr<Armed>> armed;  // last used first
    int busy = 0;                               // runs under way
    unsigned penalty = 0, wait = 0;             // runs to let pass before arming once more
};

Heap *heap_new(const GuardProgram *program);

// The state that was remembered for these roots, if nothing has changed since; else null.
Armed *heap_unchanged(Heap *heap, const Run &run);

// All rows have held in this run: remembers how.
void heap_remember(const GuardProgram *program, Run &run);

// Single operations (guards.cpp): what a load finds, borrowed or kept by the run, or null; whether a check holds.
PyObject *guard_load(Run &run, const Instruction &at);
bool guard_holds(Run &run, const Instruction &at);
PyObject *builtins_of(const View &view);
