// Knowing that a dict has not changed.
//
// 3.12 and later: dict watchers. A `WatchFlag` goes up when one of its dicts is changed, where that matters to it, or dies;
// the callback runs no Python and allocates nothing. 3.11: every dict has a version, a new one at each change, drawn from one counter.
// Used by heap.cpp; the counter of dicts that binding makes (`own_dicts`) by bind.cpp.
#pragma once

#include "frame/cpython.h"

#include <vector>

// One listener. It must be released before it goes.
struct WatchFlag {
    bool raised = false;
    std::vector<PyObject *> dicts;  // borrowed; some may be gone
};

// Whether stores to attributes of an object are seen in its `__dict__` while that shares the object's values:
// found out by a self-test (runtime/guards/compiler.py). Not so in 3.13.0.
extern bool split_dicts_are_watched;

#if PY312

// False if no watcher can be had. `key`: only what is stored there matters, or null: everything. A key must live as
// long as the flag listens.
bool watch_dict(PyObject *dict, WatchFlag *flag, PyObject *key = nullptr);

#else

// The counter of dict versions, found at import and tested; null if it was not found.
extern const uint64_t *dict_clock;
// How many dicts the native part has made for a call: versions that the counter has moved by for nothing.
extern uint64_t own_dicts;

inline const uint64_t *dict_version(PyObject *dict) { return &((PyDictObject *)dict)->ma_version_tag; }

#endif

// Binding has made a dict that nobody has seen yet.
inline void made_own_dict() {
#if !PY312
    own_dicts++;
#endif
}

void watch_release(WatchFlag *flag);
int watch_init(PyObject *module);
