#include "frame/code_state.h"

#include "frame/beside.h"

PyTypeObject *state_type;
Callbacks callbacks;
constinit thread_local ThreadState this_thread;
bool lookup_always = false;

namespace {

Py_ssize_t extra_index = -1;

// graftjit's data of a code object, in its extra slot.
struct CodeExtra {
    CodeState *state = nullptr;
    unsigned skip_epoch = 0;  // the policy epoch in which it was to be skipped
    bool skip_below = false;  // skip the frames below it, too
};

// Called when the code object dies or drops a state. A state that others still hold must not point
// to a dead code object.
void give_up(CodeState *state, bool code_is_dying) {
    state->next = nullptr;
    if (state->owned_by_code) {
        state->owned_by_code = false;
        if (code_is_dying)
            state->code = nullptr;
        else
            Py_XINCREF(state->code);
    }
    Py_DECREF(state);
}

void give_up_all(CodeState *state, bool code_is_dying) {
    while (state != nullptr) give_up(std::exchange(state, state->next), code_is_dying);
}

void free_extra(void *memory) {
    auto *extra = (CodeExtra *)memory;
    if (extra == nullptr) return;
    give_up_all(extra->state, true);
    delete extra;
}

CodeExtra *extra_of(PyObject *code, bool make) {
    void *memory = nullptr;
    if (graft_get_extra(code, extra_index, &memory) < 0) {
        PyErr_Clear();
        return nullptr;
    }
    if (memory != nullptr || !make) return (CodeExtra *)memory;
    auto *extra = new CodeExtra();
    if (graft_set_extra(code, extra_index, extra) == 0) return extra;
    delete extra;
    return nullptr;
}

// --- the processing of a call --------------------------------------------------------------------

PyObject *locals_tuple(const View &view) {
    PyObject *tuple = PyTuple_New(view.n_locals);
    for (Py_ssize_t i = 0; tuple != nullptr && i < view.n_locals; i++) {
        PyObject *value = view.locals[i];
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(value == nullptr ? Py_None : value));
    }
    return tuple;
}

PyObject *closure_or_none(const View &view) {
    return view.closure == nullptr ? Py_None : view.closure;
}

// Passes a verdict to the mirror. False with an exception set if the mirror disagrees.
bool tell_check(CodeState *state, Entry *entry, const View &view, int verdict) {
    Ref check(Py_XNewRef(callbacks.check)), locals(locals_tuple(view)),
        number(PyLong_FromLong(verdict));
    if (!check) return true;
    if (!locals || !number) return false;
    LookupScope off(Lookup::off);
    RecursionRoom raised_limit;
    PyObject *arguments[] = {(PyObject *)state, (PyObject *)entry, (PyObject *)entry->guards,
                             locals.get(),      view.globals,      closure_or_none(view),
                             number.get()};
    Ref result(PyObject_Vectorcall(check.get(), arguments, 7, nullptr));
    return (bool)result;
}

// The guard inputs of one entry, as new references that live as long as the object.
class Inputs {
  public:
    explicit Inputs(Py_ssize_t n) : n(n), values(n <= SMALL ? small : new PyObject *[n]) {}
    Inputs(const Inputs &) = delete;
    ~Inputs() {
        if (filled)
            for (Py_ssize_t i = 0; i < n; i++) Py_DECREF(values[i]);
        if (values != small) delete[] values;
    }
    Py_ssize_t n;
    bool filled = false;
    static constexpr Py_ssize_t SMALL = 24;
    PyObject *small[SMALL];
    PyObject **values;
};

// Handles an ordinary error of a program that changed nothing. True: the original runs once in
// plain Python. False: the callback raised an error of its own, or raised this one again.
bool drop_for_rerun(CodeState *state, Entry *entry) {
    if (!entry->rerun) return false;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value != nullptr && traceback != nullptr) PyException_SetTraceback(value, traceback);
    Ref type_ref(type), value_ref(value), traceback_ref(traceback);
    if (callbacks.on_rerun == nullptr) return true;
    LookupScope off(Lookup::off);
    Ref callback(Py_NewRef(callbacks.on_rerun));
    Ref result(PyObject_CallFunctionObjArgs(callback.get(), (PyObject *)state, (PyObject *)entry,
                                          value == nullptr ? Py_None : value, nullptr));
    return (bool)result;
}

// Runs a call as written, because that is faster or because nothing more is compiled for now. The
// longer that goes on, the fewer calls are looked at.
Outcome leave_alone(CodeState *state) {
    constexpr uint32_t SOME = 16, MOST = 255;
    if (++state->streak > SOME) state->skip = std::min(state->streak, MOST);
    return {nullptr, true, false, true};
}

enum class Tried { holds, fails, error };
Tried try_entry(CodeState *state, Entry *entry, const View &view, FunctionCache *cache,
                Outcome *outcome);
bool take_back(CodeState *state, Entry *entry);

// From so many exits on, an entry that leaves more than one call in four goes.
constexpr unsigned long long SEEN_EXITS = 16;

// Answers a call with other outcomes of branches than the entry assumes.
Outcome run_otherwise(CodeState *state, Entry *entry, const View &view, FunctionCache *cache) {
    PyErr_Clear();
    entry->hits--;
    entry->exits++;
    Ref kept(Py_NewRef((PyObject *)entry)), other(Py_NewRef(entry->otherwise));
    bool often = entry->exits >= SEEN_EXITS && entry->exits * 3 > entry->hits;
    if (often && !take_back(state, entry)) return {};
    Outcome outcome;
    Tried tried = try_entry(state, (Entry *)other.get(), view, cache, &outcome);
    if (tried == Tried::fails) return {nullptr, true};
    return outcome;
}

Outcome run_entry(CodeState *state, Entry *entry, const View &view, PyObject *const *inputs,
                  FunctionCache *cache) {
    entry->hits++;
    if (entry->kind == Kind::plain) return {nullptr, true, (bool)entry->extent};
    Sample sample = entry->hits < entry->trial_at ? Sample::none : trial_begins(entry);
    if (entry->slower && sample == Sample::none) return leave_alone(state);
    bool trial = sample != Sample::none;
    if (sample == Sample::plain) {
        watches_spoil();  // reports tell what compiled calls take
        return {nullptr, true, false, true, trial};
    }
    if (state->streak != 0) state->streak = 0;
    LookupScope off(Lookup::off);
    ConfigScope config(state->config);
    if (entry->kind == Kind::code)
        return {entry_run_code(entry, view, cache), false, false, false, trial};
    bool ran = false;
    PyObject *result = entry_run_direct(entry, inputs, &ran);
    if (result == nullptr && !ran && entry->otherwise != nullptr &&
        PyErr_ExceptionMatches(entry->leaves)) {
        Outcome other = run_otherwise(state, entry, view, cache);
        other.trial |= trial;
        return other;
    }
    if (result != nullptr || ran || !drop_for_rerun(state, entry))
        return {result, false, false, false, trial};
    if (trial) trial_spoil();
    return {nullptr, true, false, false, trial};
}

Ref ask_for_better(CodeState *state, Entry *entry, const View &view);

// Checks one entry; if its guards hold, `outcome` is the result of running it.
Tried try_entry(CodeState *state, Entry *entry, const View &view, FunctionCache *cache,
                Outcome *outcome) {
    bool direct = entry->kind == Kind::direct;
    Inputs inputs(direct ? guards_n_inputs(entry->guards) : 0);
    uint64_t began = watches.n > 0 ? clock_now() : 0;
    int verdict = guards_check(entry->guards, view, direct ? inputs.values : nullptr,
                               callbacks.check != nullptr);
    if (began != 0 && verdict < 0) entry->checked.add(seconds_between(began, clock_now()));
    inputs.filled = direct && verdict < 0;
    if (callbacks.check != nullptr && !tell_check(state, entry, view, verdict)) return Tried::error;
    if (verdict >= 0) return Tried::fails;
    if (entry->hot_at != 0 && entry->hits >= entry->hot_at) {
        entry->hot_at = 0;
        Ref better = ask_for_better(state, entry, view);
        if (!better) return Tried::error;
        if (Py_TYPE(better.get()) == entry_type) {
            Tried tried = try_entry(state, (Entry *)better.get(), view, cache, outcome);
            if (tried != Tried::fails) return tried;
        }
    }
    *outcome = run_entry(state, entry, view, inputs.values, cache);
    return Tried::holds;
}

bool is_capturing(const CodeState *state) {
    for (Capturing *at = this_thread.capturing; at != nullptr; at = at->up)
        if (at->state == state) return true;
    return false;
}

// Asks Python for an entry. Null without an exception: run plain Python.
Ref ask_for_entry(CodeState *state, const View &view) {
    state->misses++;
    watches_spoil();
    if (state->miss == Py_None || is_capturing(state)) return Ref();
    Ref locals(locals_tuple(view)), miss(Py_NewRef(state->miss));
    if (!locals) return Ref();
    view.values.reset();  // tensors may change during a capture
    Capturing capturing{state, this_thread.capturing};
    this_thread.capturing = &capturing;
    LookupScope off(Lookup::off);
    WithoutDynamo alone;
    RecursionRoom raised_limit;
    PyObject *arguments[] = {(PyObject *)state, locals.get(), view.globals, closure_or_none(view)};
    Ref entry(PyObject_Vectorcall(miss.get(), arguments, 4, nullptr));
    this_thread.capturing = capturing.up;
    if (!entry || entry.get() == Py_None) return Ref();
    trial_spoil();
    if (Py_TYPE(entry.get()) == entry_type) return entry;
    PyErr_Format(PyExc_TypeError, "miss returned %s, not an Entry or None",
                 Py_TYPE(entry.get())->tp_name);
    return Ref();
}

// Asks Python for an entry that assumes what usually happens. None: there is none.
Ref ask_for_better(CodeState *state, Entry *entry, const View &view) {
    if (callbacks.on_hot == nullptr || is_capturing(state)) return Ref(Py_NewRef(Py_None));
    Ref locals(locals_tuple(view)), ask(Py_NewRef(callbacks.on_hot));
    if (!locals) return Ref();
    watches_spoil();
    view.values.reset();
    Capturing capturing{state, this_thread.capturing};
    this_thread.capturing = &capturing;
    LookupScope off(Lookup::off);
    WithoutDynamo alone;
    RecursionRoom raised_limit;
    PyObject *arguments[] = {(PyObject *)state, (PyObject *)entry, locals.get(), view.globals,
                             closure_or_none(view)};
    Ref found(PyObject_Vectorcall(ask.get(), arguments, 5, nullptr));
    this_thread.capturing = capturing.up;
    return found;
}

Outcome answer_miss(CodeState *state, const View &view, FunctionCache *cache) {
    if (state->paused_until != 0 && clock_now() < state->paused_until) {
        state->misses++;
        return leave_alone(state);
    }
    Ref entry = ask_for_entry(state, view);
    if (!entry) return {nullptr, PyErr_Occurred() == nullptr};
    Outcome outcome;
    Tried tried = try_entry(state, (Entry *)entry.get(), view, cache, &outcome);
    if (tried == Tried::fails) return {nullptr, true};
    return outcome;
}

constexpr Py_ssize_t FEW = 2;  // up to so many entries are tried in order

// The search for an entry that answers one call.
struct Search {
    CodeState *state;
    const View &view;
    FunctionCache *cache;
    Ref entries;  // those at the beginning: they may be replaced meanwhile
    Outcome outcome;

    bool ask(Py_ssize_t at) {
        auto *entry = (Entry *)PyTuple_GET_ITEM(entries.get(), at);
        Tried tried = try_entry(state, entry, view, cache, &outcome);
        if (tried == Tried::holds && at != state->hint && state->entries == entries.get())
            state->hint = at;
        return tried != Tried::fails;
    }

    void remember(uint64_t key, Py_ssize_t at) {
        if (state->entries != entries.get()) return;
        if (state->memo == nullptr) state->memo = new EntryMemo();
        state->memo->put(key, at);
    }
};

// --- the type ------------------------------------------------------------------------------------

PyObject *state_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"code", "miss", "config", nullptr};
    PyObject *code, *miss = Py_None;
    unsigned config = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|OI", (char **)names, &PyCode_Type, &code,
                                     &miss, &config))
        return nullptr;
    auto *self = (CodeState *)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->code = Py_NewRef(code);
    self->miss = Py_NewRef(miss);
    self->config = config;
    self->entries = PyTuple_New(0);
    if (self->entries != nullptr) return (PyObject *)self;
    Py_DECREF(self);
    return nullptr;
}

int state_traverse(CodeState *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    if (!self->owned_by_code) Py_VISIT(self->code);
    Py_VISIT(self->miss);
    Py_VISIT(self->entries);
    Py_VISIT(self->dict);
    return 0;
}

int state_tp_clear(CodeState *self) {
    PyObject *entries = self->entries;
    delete std::exchange(self->memo, nullptr);
    self->entries = PyTuple_New(0);
    Py_XDECREF(entries);
    Py_XSETREF(self->miss, Py_NewRef(Py_None));
    Py_CLEAR(self->dict);
    return 0;
}

void state_dealloc(CodeState *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weak_references != nullptr) PyObject_ClearWeakRefs((PyObject *)self);
    if (!self->owned_by_code) Py_CLEAR(self->code);
    Py_CLEAR(self->miss);
    Py_CLEAR(self->entries);
    delete self->memo;
    Py_CLEAR(self->dict);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

bool replace_entries(CodeState *self, PyObject *entries) {
    if (entries == nullptr) return false;
    self->hint = 0;
    delete std::exchange(self->memo, nullptr);
    Py_SETREF(self->entries, entries);
    return true;
}

PyObject *state_add(CodeState *self, PyObject *entry) {
    if (Py_TYPE(entry) != entry_type) {
        PyErr_SetString(PyExc_TypeError, "CodeState.add: an Entry expected");
        return nullptr;
    }
    // A collection during the allocation may remove entries.
    Ref one(PyTuple_Pack(1, entry)), before(Py_NewRef(self->entries));
    if (!one || !replace_entries(self, PySequence_Concat(before.get(), one.get()))) return nullptr;
    self->hint = PyTuple_GET_SIZE(self->entries) - 1;
    Py_RETURN_NONE;
}

PyObject *state_remove(CodeState *self, PyObject *entry) {
    Ref kept(PyList_New(0)), before(Py_NewRef(self->entries));
    for (Py_ssize_t i = 0; kept && i < PyTuple_GET_SIZE(before.get()); i++) {
        PyObject *item = PyTuple_GET_ITEM(before.get(), i);
        if (item != entry && PyList_Append(kept.get(), item) < 0) return nullptr;
    }
    if (!kept || !replace_entries(self, PyList_AsTuple(kept.get()))) return nullptr;
    Py_RETURN_NONE;
}

// Publishes the entry for other outcomes in place of one that assumes some.
bool take_back(CodeState *state, Entry *entry) {
    Ref removed(state_remove(state, (PyObject *)entry));
    if (!removed) return false;
    return (bool)Ref(state_add(state, entry->otherwise));
}

PyObject *state_clear_method(CodeState *self, PyObject *) {
    if (!replace_entries(self, PyTuple_New(0))) return nullptr;
    self->skip = self->streak = 0;
    self->paused_until = 0;
    self->clock.whole = self->clock.inside = self->clock.gap = self->clock.plain = {};
    Py_RETURN_NONE;
}

PyObject *state_get_code(CodeState *self, void *) {
    return Py_NewRef(self->code == nullptr ? Py_None : self->code);
}

PyObject *state_get_entries(CodeState *self, void *) { return Py_NewRef(self->entries); }

// times(): (calls, samples, seconds of a call, of that in programs, samples and seconds of the gap
// between the compiled region before this one and its own), as medians of the latest samples.
PyObject *state_times(CodeState *self, PyObject *) {
    const CallClock &clock = self->clock;
    return Py_BuildValue("KIddId", (unsigned long long)clock.turn.calls, (unsigned)clock.whole.n,
                         (double)clock.whole.median(), (double)clock.inside.median(),
                         (unsigned)clock.gap.n, (double)clock.gap.median());
}

// plain_times(): (samples, seconds of an uncompiled call).
PyObject *state_plain_times(CodeState *self, PyObject *) {
    const Ring &plain = self->clock.plain;
    return Py_BuildValue("Id", (unsigned)plain.n, (double)plain.median());
}

// Leaves misses to plain Python for so many seconds.
PyObject *state_pause(CodeState *self, PyObject *seconds) {
    double span = PyFloat_AsDouble(seconds);
    if (span == -1.0 && PyErr_Occurred()) return nullptr;
    self->paused_until = clock_now() + (uint64_t)(std::max(span, 0.0) * 1e9);
    Py_RETURN_NONE;
}

PyMethodDef state_methods[] = {
    {"pause", (PyCFunction)state_pause, METH_O, "pause(seconds): leave misses to plain Python"},
    {"plain_times", (PyCFunction)state_plain_times, METH_NOARGS,
     "(samples, seconds of a call that ran as written)"},
    {"times", (PyCFunction)state_times, METH_NOARGS,
     "(calls, samples, seconds of a call, of that in programs, samples and seconds of the gap before it)"},
    {"add", (PyCFunction)state_add, METH_O, "publish an entry, atomically"},
    {"remove", (PyCFunction)state_remove, METH_O, "take an entry back"},
    {"clear", (PyCFunction)state_clear_method, METH_NOARGS, "forget all entries"},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef state_getset[] = {
    {"code", (getter)state_get_code, nullptr, "the code object, or None once it is gone", nullptr},
    {"entries", (getter)state_get_entries, nullptr, "a tuple, in order of publication", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef state_members[] = {
    {"miss", T_OBJECT_EX, offsetof(CodeState, miss), 0,
     "(state, locals, globals, closure) -> Entry | None"},
    {"misses", T_ULONGLONG, offsetof(CodeState, misses), 0, "how often no entry's guards held"},
    {"watched", T_ULONGLONG, offsetof(CodeState, watched), 0,
     "calls left to plain Python for a tracer's sake"},
    {"config", T_UINT, offsetof(CodeState, config), READONLY, "the number of the configuration"},
    {"disabled", T_BOOL, offsetof(CodeState, disabled), 0, "run in plain Python without a look"},
    {"__dictoffset__", T_PYSSIZET, offsetof(CodeState, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CodeState, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot state_slots[] = {
    {Py_tp_new, (void *)state_new},
    {Py_tp_dealloc, (void *)state_dealloc},
    {Py_tp_traverse, (void *)state_traverse},
    {Py_tp_clear, (void *)state_tp_clear},
    {Py_tp_methods, state_methods},
    {Py_tp_getset, state_getset},
    {Py_tp_members, state_members},
    {Py_tp_doc,
     (void *)"CodeState(code, miss=None, config=0): the entries of one code object, by one configuration"},
    {0, nullptr}};

PyType_Spec state_spec = {"graftjit.runtime._native.CodeState", sizeof(CodeState), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                          state_slots};

// --- module functions ----------------------------------------------------------------------------

PyObject *adopt_state(PyObject *, PyObject *args) {
    PyObject *code, *state;
    if (!PyArg_ParseTuple(args, "O!O", &PyCode_Type, &code, &state)) return nullptr;
    if (state != Py_None && !PyObject_TypeCheck(state, state_type)) {
        PyErr_SetString(PyExc_TypeError, "adopt_state: a CodeState or None expected");
        return nullptr;
    }
    if (state_adopt(code, state == Py_None ? nullptr : (CodeState *)state) < 0) return nullptr;
    Py_RETURN_NONE;
}

PyObject *ask_for_owners(PyObject *, PyObject *) {
    callbacks.owners++;
    Py_RETURN_NONE;
}

PyObject *config_of_thread(PyObject *, PyObject *) {
    return PyLong_FromUnsignedLong(this_thread.config);
}

PyObject *state_of_code(PyObject *, PyObject *code) {
    CodeState *state = PyCode_Check(code) ? state_of(code) : nullptr;
    return Py_NewRef(state == nullptr ? Py_None : (PyObject *)state);
}

// Null: leave it unchanged. None: remove it.
void set_callback(PyObject *&place, PyObject *value) {
    if (value != nullptr) Py_XSETREF(place, value == Py_None ? nullptr : Py_NewRef(value));
}

PyObject *set_callbacks(PyObject *, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"policy", "state_for", "check", "on_rerun",
                                  "on_hot", "judged", nullptr};
    PyObject *policy = nullptr, *state_for = nullptr, *check = nullptr, *on_rerun = nullptr;
    PyObject *on_hot = nullptr, *judged = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOOOO", (char **)names, &policy, &state_for,
                                     &check, &on_rerun, &on_hot, &judged))
        return nullptr;
    auto or_none = [](PyObject *callback) { return callback == nullptr ? Py_None : callback; };
    Ref before(Py_BuildValue("{s:O,s:O,s:O,s:O,s:O,s:O}", "policy", or_none(callbacks.policy),
                             "state_for", or_none(callbacks.state_for), "check",
                             or_none(callbacks.check), "on_rerun", or_none(callbacks.on_rerun),
                             "on_hot", or_none(callbacks.on_hot), "judged",
                             or_none(callbacks.judged)));
    if (!before) return nullptr;
    if (policy != nullptr) callbacks.policy_epoch++;
    set_callback(callbacks.policy, policy);
    set_callback(callbacks.state_for, state_for);
    set_callback(callbacks.check, check);
    set_callback(callbacks.on_rerun, on_rerun);
    set_callback(callbacks.on_hot, on_hot);
    set_callback(callbacks.judged, judged);
    return before.release();
}

PyMethodDef module_methods[] = {
    {"adopt_state", adopt_state, METH_VARARGS,
     "adopt_state(code, state | None): the code object keeps the state"},
    {"state_of", state_of_code, METH_O,
     "state_of(code) -> the first state that the code object keeps, or None"},
    {"ask_for_owners", ask_for_owners, METH_NOARGS,
     "ask_for_owners(): ask the policy again about each code object that has a state"},
    {"config_of_thread", config_of_thread, METH_NOARGS,
     "the number of the configuration that frames are compiled by here"},
    {"set_callbacks", (PyCFunction)(void (*)(void))set_callbacks, METH_VARARGS | METH_KEYWORDS,
     "set_callbacks(*, policy, state_for, check, on_rerun, on_hot, judged) -> what was set before; "
     "None takes one away"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

Outcome answer(CodeState *state, const View &view, FunctionCache *cache) {
    if (state->skip > 0) {
        state->skip--;
        return {nullptr, true, false, true};
    }
    Search search{state, view, cache, Ref(Py_NewRef(state->entries))};
    Py_ssize_t n = PyTuple_GET_SIZE(search.entries.get()), hint = state->hint < n ? state->hint : 0;
    if (n > 0 && search.ask(hint)) return search.outcome;
    Py_ssize_t known = -1;
    uint64_t key = 0;
    if (n > FEW) {
        key = EntryMemo::key_of(view);
        known = state->memo == nullptr ? -1 : state->memo->find(key);
        if (known >= 0 && known != hint && known < n && search.ask(known)) return search.outcome;
    }
    for (Py_ssize_t at = 0; at < n; at++) {
        if (at == hint || at == known || !search.ask(at)) continue;
        if (n > FEW) search.remember(key, at);
        return search.outcome;
    }
    return answer_miss(state, view, cache);
}

int state_adopt(PyObject *code, CodeState *state) {
    if (state != nullptr && state->code != code) {
        PyErr_SetString(PyExc_ValueError, "adopt_state: the state is of another code object");
        return -1;
    }
    CodeExtra *extra = extra_of(code, true);
    if (extra == nullptr) {
        PyErr_SetString(PyExc_RuntimeError, "adopt_state: cannot attach extra data on code objects");
        return -1;
    }
    extra->skip_epoch = 0;
    if (state == nullptr) {
        give_up_all(std::exchange(extra->state, nullptr), false);
        return 0;
    }
    CodeState **place = &extra->state;
    while (*place != nullptr && (*place)->config != state->config) place = &(*place)->next;
    CodeState *before = *place;
    state->owners = callbacks.owners;
    if (before == state) return 0;
    Py_INCREF(state);
    state->owned_by_code = true;
    Py_DECREF(code);
    state->next = before == nullptr ? nullptr : before->next;
    *place = state;
    if (before != nullptr) give_up(before, false);
    return 0;
}

CodeState *state_of(PyObject *code) {
    CodeExtra *extra = extra_of(code, false);
    return extra == nullptr ? nullptr : extra->state;
}

CodeState *policy_cached(PyObject *code, Skip *skip) {
    CodeExtra *extra = extra_of(code, false);
    bool skipped = extra != nullptr && extra->skip_epoch == callbacks.policy_epoch;
    *skip = !skipped ? Skip::no : extra->skip_below ? Skip::below : Skip::frame;
    CodeState *state = extra == nullptr || skipped ? nullptr : extra->state;
    while (state != nullptr && state->config != this_thread.config) state = state->next;
    return state == nullptr || state->owners == callbacks.owners ? state : nullptr;
}

int policy_remember_skip(PyObject *code, Skip skip) {
    CodeExtra *extra = extra_of(code, true);
    if (extra == nullptr) return -1;
    extra->skip_epoch = callbacks.policy_epoch;
    extra->skip_below = skip == Skip::below;
    return 0;
}

int state_init(PyObject *module) {
    extra_index = graft_extra_index(free_extra);
    if (extra_index < 0) {
        PyErr_SetString(PyExc_ImportError, "graftjit: no extra slot on code objects is free");
        return -1;
    }
    state_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &state_spec, nullptr);
    if (state_type == nullptr || PyModule_AddType(module, state_type) < 0) return -1;
    return PyModule_AddFunctions(module, module_methods);
}
