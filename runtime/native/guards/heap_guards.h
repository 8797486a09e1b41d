// The heap part of a guard program: remembered reads, so that "nothing changed" is a quick check.
//
// A program's operations are of three kinds. Those about arguments and interpreter state run at
// each call. The others read the heap: attributes, globals, classes, containers. After a run in
// which all rows held, their outcome is stored as an `Armed`: the values found, and signs of a
// change: memory words in the order of the paths, watched dicts (dict_watch.h), traces of tensors.
// While none of these differs, the rows hold. Operations without such a sign run at each call, too
// ("loose"). If a sign differs, the rows run again, and their outcome is remembered again.
#pragma once

#include "guards/guard_program.h"
#include "frame/class_watch.h"
#include "tensors/tensor_trace.h"
#include "frame/dict_watch.h"

#include <memory>

// The registers and references of one call; guard_program.cpp runs operations over it.
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

// A word read on the path to a value. Its address is valid while all words before it hold.
struct Word {
    const uintptr_t *at;
    uintptr_t was;
};

// The start of a path into the heap: a register that each call fills, or the class of its value.
struct Root {
    enum Kind : char { globals, builtins, cell, value, type } kind;
    int number = 0;            // of the cell or register
    int local = -1;            // the argument that it comes from
    int strangers = 0;         // consecutive runs with a new object
    uintptr_t recent[8] = {};  // objects of past runs
    bool operator==(const Root &other) const {
        return kind == other.kind && number == other.number;
    }
};

struct Armed {
    std::vector<uintptr_t> roots;
    std::vector<PyObject *> registers;  // borrowed: alive while the words hold
    std::vector<PyObject *> inputs;     // null: filled by this call
    std::vector<Word> words;            // compared at each call
    // `words` with those that change only if a class or `__dict__` is reassigned (class_watch.h)
    std::vector<Word> all;
    Reassigned reassigned;  // the counter when all of them held
    TensorTraces tensors;
    std::vector<int> loose;        // operations that run at each call
    std::vector<int> loose_reads;  // registers that they read
    // constants at addresses that words contain, and weak references to classes
    std::vector<PyObject *> pins;
    WatchFlag flag;
    #if !PY312
    // `words` with the versions of dicts, which `all` contains, too
    std::vector<Word> versions;
    uint64_t clock = 0;  // the version counter when all of them held
#endif
    unsigned hits = 0;

    ~Armed();
};

// The parts of a program, and the outcomes of past runs.
struct Heap {
    std::vector<int> always, rest;  // operations by kind
    std::vector<int> values;  // "value" rows, which run after all others hold
    size_t n_arguments = 0;  // arguments come first in `always`, then operations about the thread
    std::vector<char> each_call;    // by register: filled by `always`
    // By local: it is another object at each call, so nothing is remembered of it.
    std::vector<char> fresh;
    std::vector<Root> roots;
    std::vector<std::unique_ptr<Armed>> armed;  // last used first
    int busy = 0;  // running checks
    unsigned penalty = 0, wait = 0;  // runs to skip before arming again
};

Heap *heap_new(const GuardProgram *program);

// The state remembered for these roots, if nothing has changed; else null.
Armed *heap_unchanged(Heap *heap, const Run &run);

// Remembers a run in which all rows held.
void heap_remember(const GuardProgram *program, Run &run);

// Single operations (guard_program.cpp): the loaded value, borrowed or kept by the run, or null;
// whether a check holds.
PyObject *guard_load(Run &run, const Instruction &at);
bool guard_holds(Run &run, const Instruction &at);
PyObject *builtins_of(const View &view);
