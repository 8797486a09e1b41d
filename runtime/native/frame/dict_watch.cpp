#include "frame/dict_watch.h"

#include "frame/objects.h"

#include <algorithm>
#include <unordered_map>

#if !PY312
#include <link.h>
#endif

bool split_dicts_are_watched = false;

#if PY312

namespace {

int watcher = -1;

struct Listener {
    WatchFlag *flag;
    bool whole = false;  // every key is relevant
    std::vector<PyObject *> keys;  // else only these, exact strs
};

// The listeners of a dict, which is in the map as long as it lives. Never freed, since dicts may
// outlive the module.
std::unordered_map<PyObject *, std::vector<Listener>> *listeners;

bool is_of_one_key(PyDict_WatchEvent event) {
    return event == PyDict_EVENT_ADDED || event == PyDict_EVENT_MODIFIED ||
           event == PyDict_EVENT_DELETED;
}

int on_event(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *) {
    auto found = listeners->find(dict);
    if (found == listeners->end()) return 0;
    // A key of another class may be equal to a str.
    bool is_named = is_of_one_key(event) && key != nullptr && PyUnicode_CheckExact(key);
    for (const Listener &one : found->second) {
        auto same = [key](PyObject *mine) { return same_constant(mine, key); };
        if (!is_named || one.whole || std::any_of(one.keys.begin(), one.keys.end(), same))
            one.flag->raised = true;
    }
    if (event == PyDict_EVENT_DEALLOCATED) listeners->erase(found);
    return 0;
}

int start_watching() {
    listeners = new std::unordered_map<PyObject *, std::vector<Listener>>();
    watcher = PyDict_AddWatcher(on_event);
    if (watcher < 0) PyErr_Clear();  // no watcher is free: values are compared instead
    return 0;
}

}  // namespace

bool watch_dict(PyObject *dict, WatchFlag *flag, PyObject *key) {
    if (watcher < 0) return false;
    std::vector<Listener> &all = (*listeners)[dict];
    auto mine = std::find_if(all.begin(), all.end(),
                             [flag](const Listener &one) { return one.flag == flag; });
    if (all.empty() && PyDict_Watch(watcher, dict) < 0) {
        PyErr_Clear();
        listeners->erase(dict);
        return false;
    }
    if (mine == all.end()) {
        mine = all.insert(all.end(), {flag});
        flag->dicts.push_back(dict);
    }
    if (key == nullptr || !PyUnicode_CheckExact(key))
        mine->whole = true;
    else if (std::find(mine->keys.begin(), mine->keys.end(), key) == mine->keys.end())
        mine->keys.push_back(key);
    return true;
}

void watch_release(WatchFlag *flag) {
    for (PyObject *dict : flag->dicts) {
        // This may be another dict by now, at the address of a dead one.
        auto found = listeners->find(dict);
        if (found == listeners->end()) continue;
        std::vector<Listener> &all = found->second;
        std::erase_if(all, [flag](const Listener &one) { return one.flag == flag; });
        if (!all.empty()) continue;
        listeners->erase(found);
        if (PyDict_Unwatch(watcher, dict) < 0) PyErr_Clear();
    }
    flag->dicts.clear();
    flag->raised = false;
}

#else

const uint64_t *dict_clock = nullptr;
uint64_t own_dicts = 0;

namespace {

// The version of a new dict: the current value of the counter.
uint64_t newest_version() {
    Ref dict(PyDict_New());
    return dict ? *dict_version(dict.get()) : 0;
}

// Finds words in the interpreter's data that hold the newest version, since CPython does not export
// the counter.
int find_clocks(struct dl_phdr_info *library, size_t, void *data) {
    auto &found = *(std::vector<const uint64_t *> *)data;
    auto within = [library](const ElfW(Phdr) &part, const void *address) {
        auto begin = library->dlpi_addr + part.p_vaddr;
        return (uintptr_t)address >= begin && (uintptr_t)address < begin + part.p_memsz;
    };
    bool ours = false;
    for (int i = 0; i < library->dlpi_phnum; i++)
        ours = ours || within(library->dlpi_phdr[i], &PyDict_Type);
    if (!ours) return 0;
    uint64_t newest = newest_version();
    for (int i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) &part = library->dlpi_phdr[i];
        if (part.p_type != PT_LOAD || !(part.p_flags & PF_W)) continue;
        auto *begin = (const uint64_t *)((library->dlpi_addr + part.p_vaddr + 7) & ~(uintptr_t)7);
        for (size_t at = 0; at + 2 < part.p_memsz / 8; at++)
            if (begin[at] == newest) found.push_back(begin + at);
    }
    return 1;
}

int start_watching() {
    std::vector<const uint64_t *> found;
    dl_iterate_phdr(find_clocks, &found);
    for (int test = 0; test < 8; test++) {
        Ref dict(PyDict_New());
        if (!dict || PyDict_SetItemString(dict.get(), "a", Py_None) < 0) return -1;
        uint64_t version = *dict_version(dict.get());
        auto wrong = [version](const uint64_t *clock) { return *clock != version; };
        found.erase(std::remove_if(found.begin(), found.end(), wrong), found.end());
    }
    uint64_t before = newest_version();
    bool by_one = newest_version() == before + 1;  // as `own_dicts` assumes
    dict_clock = found.size() == 1 && by_one ? found[0] : nullptr;
    return 0;
}

}  // namespace

void watch_release(WatchFlag *) {}

#endif

namespace {

// change_is_seen(dict, change) -> whether the effect of a callable without arguments on the dict is
// detected
PyObject *change_is_seen(PyObject *, PyObject *args) {
    PyObject *dict, *change;
    if (!PyArg_ParseTuple(args, "O!O", &PyDict_Type, &dict, &change)) return nullptr;
#if PY312
    WatchFlag flag;
    if (!watch_dict(dict, &flag)) Py_RETURN_FALSE;
    Ref done(PyObject_CallNoArgs(change));
    bool seen = flag.raised;
    watch_release(&flag);
#else
    uint64_t before = *dict_version(dict);
    Ref done(PyObject_CallNoArgs(change));
    bool seen = *dict_version(dict) != before;
#endif
    return done ? PyBool_FromLong(seen) : nullptr;
}

PyObject *trust_split_dicts(PyObject *, PyObject *trusted) {
    split_dicts_are_watched = trusted == Py_True;
    Py_RETURN_NONE;
}

// how_dicts_are_watched() -> a text for `doctor` and tests
PyObject *how_dicts_are_watched(PyObject *, PyObject *) {
#if PY312
    const char *how = watcher < 0 ? "values" : "watchers";
#else
    const char *how = dict_clock == nullptr ? "versions" : "versions and their counter";
#endif
    return PyUnicode_FromFormat("%s%s", how,
                                split_dicts_are_watched ? "" : "; shared values by value");
}

PyMethodDef methods[] = {
    {"change_is_seen", change_is_seen, METH_VARARGS,
     "change_is_seen(dict, change) -> whether what change() does to the dict is seen"},
    {"trust_split_dicts", trust_split_dicts, METH_O,
     "what the self-test of runtime.guard_program found"},
    {"how_dicts_are_watched", how_dicts_are_watched, METH_NOARGS, "in words"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int watch_init(PyObject *module) {
    if (start_watching() < 0) return -1;
    return PyModule_AddFunctions(module, methods);
}
