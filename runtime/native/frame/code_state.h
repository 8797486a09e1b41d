// CodeState: the entries of one code object, and the processing of each of its calls.
//
// `answer` finds an entry whose guards hold, asks Python to make one on a miss, and runs it.
// callable.cpp (a jitted function, a resume function) and hook.cpp (a frame below a compiled
// callable) call it.
#pragma once

#include "frame/entry.h"
#include "frame/entry_memo.h"

struct CodeState {
    PyObject_HEAD
    // borrowed while the code object owns this state (see `state_adopt`), else strong
    PyObject *code;
    bool owned_by_code;
    unsigned config;  // the number of the configuration for its frames
    CodeState *next;  // state of another configuration, owned by the same code object
    unsigned owners;  // `callbacks.owners` when the policy was asked last
    PyObject *miss;
    PyObject *entries;  // tuple in order of publication; replaced as a whole
    Py_ssize_t hint;    // the entry that answered last, which is tried first
    // the entry for such arguments, tried next; null while there are few entries
    EntryMemo *memo;
    unsigned long long misses;
    CallClock clock;
    // Calls that are left to plain Python without a look, and how often that was decided in a row.
    uint32_t skip, streak;
    uint64_t paused_until;  // the clock at which misses are answered again
    unsigned long long watched;  // calls that ran in plain Python because of a tracer or debugger
    char disabled;
    PyObject *dict;
    PyObject *weak_references;
};

extern PyTypeObject *state_type;

// Python functions that native code calls; set by _native.set_callbacks, null if missing.
struct Callbacks {
    PyObject *policy = nullptr;     // (code, globals) -> CodeState | None
    PyObject *state_for = nullptr;  // (code) -> CodeState
    PyObject *check = nullptr;      // (state, entry, guards, locals, globals, closure, verdict)
    PyObject *on_rerun = nullptr;   // (state, entry, exception)
    PyObject *on_hot = nullptr;     // (state, entry, locals, globals, closure) -> Entry | None
    // (state, entry, slower, seconds compiled, seconds as written) -> whether to do it
    PyObject *judged = nullptr;
    unsigned policy_epoch = 1;
    // Changes where other callables may have come to run frames inside: the policy notes below
    // which of them it is asked.
    unsigned owners = 1;
};
extern Callbacks callbacks;

// Whether the hook looks up frames of this thread; see hook.cpp.
enum class Lookup { unset, off, on };

struct Capturing {
    CodeState *state;
    Capturing *up;
};

// The arguments of a pending call, to which only the called frame keeps references; see call_frame.
struct Giving {
    PyObject **values;  // the closure, then the locals
    Py_ssize_t n;
    bool armed = false;
};

struct ThreadState {
    Lookup lookup = Lookup::unset;
    // That of the frame whose entry is running: frames below it are compiled in the same way.
    unsigned config = 0;
    // The hooks for saved tensors around the callable whose frames are looked up: `saving_hooks`.
    const void *saving = nullptr;
    Capturing *capturing = nullptr;
    // The code of the next frame, if that has already been looked up.
    PyObject *skip = nullptr;
    // The frame that was passed to an older evaluator.
    const void *passing = nullptr;
    Giving *giving = nullptr;
};
extern constinit thread_local ThreadState this_thread;
extern bool lookup_always;  // GRAPH_MODE

inline bool lookup_is_on() {
    return this_thread.lookup == Lookup::on ||
           (lookup_always && this_thread.lookup == Lookup::unset);
}

// A setting of this thread for the duration of a scope.
template <class T, T ThreadState::*setting>
class ThreadScope {
  public:
    explicit ThreadScope(T value) : before(this_thread.*setting) { this_thread.*setting = value; }
    ThreadScope(const ThreadScope &) = delete;
    ~ThreadScope() { this_thread.*setting = before; }

  private:
    T before;
};

using LookupScope = ThreadScope<Lookup, &ThreadState::lookup>;  // whether frames are looked up
// The configuration by which they are compiled.
using ConfigScope = ThreadScope<unsigned, &ThreadState::config>;
using SavingScope = ThreadScope<const void *, &ThreadState::saving>;

// The outcome of `answer`: a result (null with an exception set), or that the original must run in
// plain Python.
struct Outcome {
    PyObject *result = nullptr;
    bool plain = false;
    bool extent = false;  // plain, and the hook looks up frames inside
    bool alone = false;   // plain, and the hook looks up no frame inside
    bool trial = false;   // `trial_ends` must be told of it
};

Outcome answer(CodeState *state, const View &view, FunctionCache *cache);

// The result of a call with this outcome, whose trial ends here.
inline PyObject *ended(CodeState *state, const Outcome &outcome, PyObject *result) {
    if (outcome.trial) trial_ends(state, result != nullptr);
    return result;
}

// Makes the code object own this state, in place of the one with the same configuration; null:
// drops all its states.
int state_adopt(PyObject *code, CodeState *state);

// The first state that the code object owns, borrowed, or null.
CodeState *state_of(PyObject *code);

// The policy's verdict on a code object: whether its frames are ignored, by themselves or with all
// frames below them.
enum class Skip { no, frame, below };

// The cached verdict of the policy on a code object: its state for this thread's configuration; or
// null with *skip set; or null if the policy was not asked yet, or must be asked again.
CodeState *policy_cached(PyObject *code, Skip *skip);
int policy_remember_skip(PyObject *code, Skip skip);

int state_init(PyObject *module);
