// Detects that a dict has changed.
//
// 3.12 and later use dict watchers. A `WatchFlag` is raised when one of its dicts dies or changes
// in a relevant key; the callback runs no Python and allocates nothing. In 3.11 every dict has a
// version, which each change sets to the next value of a global counter. The heap guards use it;
// bind_arguments.cpp counts the dicts that binding makes (`own_dicts`).
#pragma once

#include "frame/cpython.h"

#include <vector>

// One listener. It must be released before it is destroyed.
struct WatchFlag {
    bool raised = false;
    std::vector<PyObject *> dicts;  // borrowed; some may be dead
};

// Whether stores to attributes of an object are detected in its `__dict__` while both share the
// object's values. A self-test decides (runtime/guards/compiler.py); not so in 3.13.0.
extern bool split_dicts_are_watched;

#if PY312

// False if no watcher is available. `key`: only stores under it are relevant; null: all are. A key
// must live as long as the flag listens.
bool watch_dict(PyObject *dict, WatchFlag *flag, PyObject *key = nullptr);

#else

// The counter of dict versions, found and tested at import; null if it was not found.
extern const uint64_t *dict_clock;
// The number of dicts that the native part made for calls, which incremented the counter without
// any change.
extern uint64_t own_dicts;

inline const uint64_t *dict_version(PyObject *dict) {
    return &((PyDictObject *)dict)->ma_version_tag;
}

#endif

// Notes that binding has made a dict that no other code has seen yet.
inline void made_own_dict() {
#if !PY312
    own_dicts++;
#endif
}

void watch_release(WatchFlag *flag);
int watch_init(PyObject *module);
