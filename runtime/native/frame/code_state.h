// CodeState: the entries of one code object; and the road every call of it takes.
//
// `answer` looks for an entry whose guards hold, asks Python to make one on a miss, and runs it. Called by
// callable.cpp (a jitted function, a resume function) and by hook.cpp (a frame inside an extent).
#pragma once

#include "frame/entry.h"
#include "frame/entry_memo.h"

struct CodeState {
    PyObject_HEAD
    PyObject *code;    // borrowed while the code object owns this state (see `state_adopt`), else strong
    bool owned_by_code;
    unsigned config;   // the number of the configuration that its frames are compiled by
    CodeState *next;   // of the same code object, which owns it, by another configuration
    PyObject *miss;
    PyObject *entries;  // tuple in order of publication; replaced as a whole
    Py_ssize_t hint;    // the entry that answered last is asked first
    EntryMemo *memo;    // and then the one that answered such arguments; null while there are few
    unsigned long long misses;
    CallClock clock;
    unsigned long long watched;  // calls that a tracer or debugger made run in plain Python
    char disabled;
    PyObject *dict;
    PyObject *weak_references;
};

extern PyTypeObject *state_type;

// Python functions that native code calls; set by _native.set_callbacks, null if absent.
struct Callbacks {
    PyObject *policy = nullptr;     // (code, globals) -> CodeState | None
    PyObject *state_for = nullptr;  // (code) -> CodeState
    PyObject *check = nullptr;      // (state, entry, guards, locals, globals, closure, verdict)
    PyObject *on_rerun = nullptr;   // (state, entry, exception)
    unsigned policy_epoch = 1;
};
extern Callbacks callbacks;

// Whether frames of this thread are looked up; see hook.cpp.
enum class Lookup { unset, off, on };

struct Capturing {
    CodeState *state;
    Capturing *up;
};

// The arguments of a pending call, which the frame that gets them is to hold alone; see call_frame.
struct Giving {
    PyObject **values;  // the closure, then the locals
    Py_ssize_t n;
    bool armed = false;
};

struct ThreadState {
    Lookup lookup = Lookup::unset;
    unsigned config = 0;  // that of the frame whose entry runs: frames below it are compiled alike
    Capturing *capturing = nullptr;
    PyObject *skip = nullptr;     // the next frame, if it is of this code, has been looked up already
    const void *passing = nullptr;  // the frame that an older evaluator has been given
    Giving *giving = nullptr;
};
extern constinit thread_local ThreadState this_thread;
extern bool lookup_always;  // GRAPH_MODE

inline bool lookup_is_on() {
    return this_thread.lookup == Lookup::on || (lookup_always && this_thread.lookup == Lookup::unset);
}

// A setting of this thread until the end of the scope.
template <class T, T ThreadState::*setting>
class ThreadScope {
  public:
    explicit ThreadScope(T value) : before(this_thread.*setting) { this_thread.*setting = value; }
    ThreadScope(const ThreadScope &) = delete;
    ~ThreadScope() { this_thread.*setting = before; }

  private:
    T before;
};

using LookupScope = ThreadScope<Lookup, &ThreadState::lookup>;    // what happens to frames
using ConfigScope = ThreadScope<unsigned, &ThreadState::config>;  // by which configuration they are compiled

// What `answer` found: a result (null with an exception set), or that the original is to run in plain Python.
struct Outcome {
    PyObject *result = nullptr;
    bool plain = false;
    bool extent = false;  // plain, with frames inside looked up
};

Outcome answer(CodeState *state, const View &view, FunctionCache *cache);

// The code object keeps this state from now on, in place of the one of the same configuration; null: it keeps none.
int state_adopt(PyObject *code, CodeState *state);

// The first state that the code object keeps, borrowed, or null.
CodeState *state_of(PyObject *code);

// What the policy says of a code object: whether its frames are left alone, with all frames below them or by themselves.
enum class Skip { no, frame, below };

// Cached verdict of the policy on a code object: its state by this thread's configuration, or null with *skip set, or
// null: not asked yet.
CodeState *policy_cached(PyObject *code, Skip *skip);
int policy_remember_skip(PyObject *code, Skip skip);

int state_init(PyObject *module);
