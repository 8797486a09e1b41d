#include "frame/entry.h"

#include "frame/hook.h"
#include "executor/program.h"

#include <cstring>

PyTypeObject *entry_type;

// The structure of a direct entry's result.
struct Tree {
    enum Kind { OUT, CONST, INPUT, TUPLE, LIST, DICT } kind;
    Py_ssize_t index = 0;
    PyObject *object = nullptr;
    std::vector<Tree> parts;  // DICT: key, value, key, value, ...
};

namespace {

// --- result trees --------------------------------------------------------------------------------

bool parse_tree(PyObject *spec, Tree &tree);

bool parse_parts(PyObject *spec, Tree &tree) {
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(spec); i++) {
        tree.parts.emplace_back();
        if (!parse_tree(PyTuple_GET_ITEM(spec, i), tree.parts.back())) return false;
    }
    return true;
}

bool parse_pairs(PyObject *pairs, Tree &tree) {
    if (!PyTuple_Check(pairs)) {
        PyErr_SetString(PyExc_TypeError, "result tree: ('dict', ((key, value), ...)) expected");
        return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); i++) {
        PyObject *key, *value, *pair = PyTuple_GET_ITEM(pairs, i);
        if (!PyTuple_Check(pair)) {
            PyErr_Format(PyExc_TypeError, "result tree: a pair expected, not %R", pair);
            return false;
        }
        if (!PyArg_ParseTuple(pair, "OO", &key, &value)) return false;
        tree.parts.emplace_back();
        if (!parse_tree(key, tree.parts.back())) return false;
        tree.parts.emplace_back();
        if (!parse_tree(value, tree.parts.back())) return false;
    }
    return true;
}

bool parse_tree(PyObject *spec, Tree &tree) {
    static const char *const words[] = {"out", "const", "input", "tuple", "list", "dict"};
    if (!PyTuple_Check(spec) || PyTuple_GET_SIZE(spec) < 1 ||
        !PyUnicode_Check(PyTuple_GET_ITEM(spec, 0))) {
        PyErr_Format(PyExc_TypeError, "result tree: a tuple with a word in front expected, not %R",
                     spec);
        return false;
    }
    int kind = 0;
    while (kind < 6 &&
           PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(spec, 0), words[kind]) != 0)
        kind++;
    tree.kind = (Tree::Kind)kind;
    bool leaf = kind <= Tree::INPUT || kind == Tree::DICT;
    if (kind == 6 || (leaf && PyTuple_GET_SIZE(spec) != 2)) {
        PyErr_Format(PyExc_ValueError, "result tree: cannot read %R", spec);
        return false;
    }
    if (kind == Tree::TUPLE || kind == Tree::LIST) return parse_parts(spec, tree);
    PyObject *operand = PyTuple_GET_ITEM(spec, 1);
    if (kind == Tree::DICT) return parse_pairs(operand, tree);
    if (kind == Tree::CONST) {
        tree.object = Py_NewRef(operand);
        return true;
    }
    tree.index = PyLong_AsSsize_t(operand);
    return !(tree.index == -1 && PyErr_Occurred());
}

// Whether every index is in range.
bool tree_fits(const Tree &tree, Py_ssize_t n_inputs) {
    if (tree.kind == Tree::INPUT && (tree.index < 0 || tree.index >= n_inputs)) return false;
    if (tree.kind == Tree::OUT && tree.index < 0) return false;
    for (const Tree &part : tree.parts)
        if (!tree_fits(part, n_inputs)) return false;
    return true;
}

int visit_tree(Tree &tree, visitproc visit, void *arg) {
    Py_VISIT(tree.object);
    for (Tree &part : tree.parts)
        if (int stop = visit_tree(part, visit, arg)) return stop;
    return 0;
}

void clear_tree(Tree &tree) {
    Py_CLEAR(tree.object);
    for (Tree &part : tree.parts) clear_tree(part);
}

struct Values {
    PyObject *const *inputs;
    PyObject *const *outputs;
    Py_ssize_t n_outputs;
};

PyObject *build(const Tree &tree, const Values &values);

PyObject *build_tuple(const Tree &tree, const Values &values) {
    Ref result(PyTuple_New((Py_ssize_t)tree.parts.size()));
    for (size_t i = 0; result && i < tree.parts.size(); i++) {
        PyObject *part = build(tree.parts[i], values);
        if (part == nullptr) return nullptr;
        PyTuple_SET_ITEM(result.get(), (Py_ssize_t)i, part);
    }
    return result.release();
}

PyObject *build_list(const Tree &tree, const Values &values) {
    Ref result(PyList_New((Py_ssize_t)tree.parts.size()));
    for (size_t i = 0; result && i < tree.parts.size(); i++) {
        PyObject *part = build(tree.parts[i], values);
        if (part == nullptr) return nullptr;
        PyList_SET_ITEM(result.get(), (Py_ssize_t)i, part);
    }
    return result.release();
}

PyObject *build_dict(const Tree &tree, const Values &values) {
    Ref result(PyDict_New());
    for (size_t i = 0; result && i + 1 < tree.parts.size(); i += 2) {
        Ref key(build(tree.parts[i], values));
        if (!key) return nullptr;
        Ref value(build(tree.parts[i + 1], values));
        if (!value || PyDict_SetItem(result.get(), key.get(), value.get()) < 0) return nullptr;
    }
    return result.release();
}

PyObject *build(const Tree &tree, const Values &values) {
    switch (tree.kind) {
        case Tree::OUT:
            if (tree.index < values.n_outputs) return Py_NewRef(values.outputs[tree.index]);
            PyErr_Format(PyExc_SystemError,
                         "a compiled program has %zd outputs, its entry wants output %zd",
                         values.n_outputs, tree.index);
            return nullptr;
        case Tree::CONST: return Py_NewRef(tree.object);
        case Tree::INPUT: return Py_NewRef(values.inputs[tree.index]);
        case Tree::TUPLE: return build_tuple(tree, values);
        case Tree::LIST: return build_list(tree, values);
        case Tree::DICT: return build_dict(tree, values);
    }
    return nullptr;
}

// --- direct --------------------------------------------------------------------------------------

PyObject *run_program(Entry *entry, PyObject *const *inputs, bool *ran) {
    constexpr Py_ssize_t SMALL = 16;
    PyObject *small[SMALL];
    Py_ssize_t n = program_n_outputs(entry->target);
    std::vector<PyObject *> large;
    PyObject **outputs = small;
    if (n > SMALL) {
        large.resize(n);
        outputs = large.data();
    }
    if (program_run(entry->target, inputs, entry->n_program_inputs, outputs) < 0) return nullptr;
    *ran = true;
    if (n == 1 && entry->tree->kind == Tree::OUT && entry->tree->index == 0) return outputs[0];
    PyObject *result = build(*entry->tree, {inputs, outputs, n});
    for (Py_ssize_t i = 0; i < n; i++) Py_DECREF(outputs[i]);
    return result;
}

PyObject *run_python_program(Entry *entry, PyObject *const *inputs, bool *ran) {
    Ref outputs(
        PyObject_Vectorcall(entry->target, inputs, (size_t)entry->n_program_inputs, nullptr));
    if (!outputs) return nullptr;
    *ran = true;
    if (!PyTuple_Check(outputs.get()) && !PyList_Check(outputs.get())) {
        PyErr_Format(PyExc_TypeError, "a compiled program returned %s, not a tuple",
                     Py_TYPE(outputs.get())->tp_name);
        return nullptr;
    }
    Values values{inputs, PySequence_Fast_ITEMS(outputs.get()),
                  PySequence_Fast_GET_SIZE(outputs.get())};
    return build(*entry->tree, values);
}

// --- the type ------------------------------------------------------------------------------------

const char *const KIND_NAMES[] = {"direct", "code", "plain"};

bool set_up(Entry *self, const char *kind, PyObject *target, PyObject *tree,
            Py_ssize_t n_program_inputs) {
    int index = 0;
    while (index < 3 && strcmp(kind, KIND_NAMES[index]) != 0) index++;
    if (index == 3) {
        PyErr_Format(PyExc_ValueError, "Entry: kind '%s' is not one of direct, code, plain", kind);
        return false;
    }
    self->kind = (Kind)index;
    self->target_is_program = self->kind == Kind::direct && program_check(target);
    if (self->kind == Kind::code && !PyCode_Check(target) && !PyFunction_Check(target)) {
        PyErr_SetString(PyExc_TypeError,
                        "Entry: a code entry's target is a code object or a function");
        return false;
    }
    if (self->kind != Kind::direct) return true;
    Py_ssize_t n_inputs = guards_n_inputs(self->guards);
    self->n_program_inputs = n_program_inputs < 0 ? n_inputs : n_program_inputs;
    self->tree = new Tree();
    if (!parse_tree(tree, *self->tree)) return false;
    if (PyCallable_Check(target) && self->n_program_inputs <= n_inputs &&
        tree_fits(*self->tree, n_inputs))
        return true;
    PyErr_SetString(PyExc_ValueError,
                    "Entry: the target is not callable, or inputs are named that the guards lack");
    return false;
}

PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"kind", "guards", "target", "tree", "n_program_inputs",
                                  "name", "rows",   "rerun",  "extent", nullptr};
    const char *kind;
    PyObject *guards, *target = Py_None, *tree = Py_None, *name = nullptr, *rows = nullptr;
    Py_ssize_t n_program_inputs = -1;
    int rerun = 0, extent = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO!|OOnOOpp", (char **)names, &kind,
                                     guard_program_type, &guards, &target, &tree, &n_program_inputs,
                                     &name, &rows, &rerun, &extent))
        return nullptr;
    auto *self = (Entry *)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->guards = (GuardProgram *)Py_NewRef(guards);
    self->target = Py_NewRef(target);
    self->name = name == nullptr ? PyUnicode_FromString("") : Py_NewRef(name);
    self->rows = rows == nullptr ? PyTuple_New(0) : Py_NewRef(rows);
    self->data = Py_NewRef(Py_None);
    self->rerun = (char)rerun;
    self->trial_at = ~0ull;
    self->extent = (char)extent;
    if (self->name != nullptr && self->rows != nullptr &&
        set_up(self, kind, target, tree, n_program_inputs))
        return (PyObject *)self;
    Py_DECREF(self);
    return nullptr;
}

int entry_traverse(Entry *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->guards);
    Py_VISIT(self->target);
    Py_VISIT(self->rows);
    Py_VISIT(self->data);
    Py_VISIT(self->otherwise);
    Py_VISIT(self->leaves);
    return self->tree == nullptr ? 0 : visit_tree(*self->tree, visit, arg);
}

// The guards and the tree stay, since a dying callable may still use an entry that is being
// collected.
int entry_clear(Entry *self) {
    Py_CLEAR(self->data);
    Py_CLEAR(self->rows);
    Py_CLEAR(self->otherwise);
    Py_CLEAR(self->leaves);
    return 0;
}

void entry_dealloc(Entry *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    entry_clear(self);
    Py_CLEAR(self->guards);
    Py_CLEAR(self->target);
    Py_CLEAR(self->name);
    if (self->tree != nullptr) {
        clear_tree(*self->tree);
        delete self->tree;
    }
    delete self->trials;
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

PyObject *entry_get_kind(Entry *self, void *) {
    return PyUnicode_FromString(KIND_NAMES[(int)self->kind]);
}

// (samples, seconds of a guard check).
PyObject *entry_get_guard_time(Entry *self, void *) {
    return Py_BuildValue("Id", (unsigned)self->checked.n, (double)self->checked.median());
}

// assume(otherwise, leaves): the program assumes outcomes of branches.
PyObject *entry_assume(Entry *self, PyObject *args) {
    PyObject *otherwise, *leaves;
    if (!PyArg_ParseTuple(args, "O!O", entry_type, &otherwise, &leaves)) return nullptr;
    Py_XSETREF(self->otherwise, Py_NewRef(otherwise));
    Py_XSETREF(self->leaves, Py_NewRef(leaves));
    Py_RETURN_NONE;
}

PyObject *entry_repr(Entry *self) {
    return PyUnicode_FromFormat("<Entry %s %S, %llu hits>", KIND_NAMES[(int)self->kind], self->name,
                                self->hits);
}

PyObject *entry_arm(Entry *self, PyObject *) {
    trials_arm(self);
    Py_RETURN_NONE;
}

// Samples and seconds of compiled calls and of calls as written since the last verdict; the samples
// of neither; the ratio of the times at the latest judgement (0: there was none).
PyObject *entry_trials(Entry *self, PyObject *) {
    const Trials none{}, &trials = self->trials == nullptr ? none : *self->trials;
    return Py_BuildValue("IdIdId", trials.compiled.n, trials.compiled.seconds(), trials.plain.n,
                         trials.plain.seconds(), trials.lost, trials.ratio);
}

PyMethodDef entry_methods[] = {
    {"assume", (PyCFunction)entry_assume, METH_VARARGS,
     "assume(otherwise, leaves): the entry that answers where the program raises `leaves`"},
    {"trials", (PyCFunction)entry_trials, METH_NOARGS,
     "(samples and seconds compiled, the same as written, since the last verdict; lost; ratio)"},
    {"arm", (PyCFunction)entry_arm, METH_NOARGS,
     "try some of its calls in plain Python, and run all of them so if that is faster"},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef entry_getset[] = {
    {"kind", (getter)entry_get_kind, nullptr, "direct, code or plain", nullptr},
    {"guard_time", (getter)entry_get_guard_time, nullptr, "(samples, seconds of a check that held)",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef entry_members[] = {
    {"guards", T_OBJECT_EX, offsetof(Entry, guards), READONLY, "the GuardProgram"},
    {"target", T_OBJECT_EX, offsetof(Entry, target), READONLY,
     "the program or the replacement code"},
    {"hits", T_ULONGLONG, offsetof(Entry, hits), 0, "how often it has answered"},
    {"rows", T_OBJECT_EX, offsetof(Entry, rows), 0, "the guard rows, for reports and the mirror"},
    {"name", T_OBJECT_EX, offsetof(Entry, name), 0, "for reports"},
    {"data", T_OBJECT_EX, offsetof(Entry, data), 0, "whatever its maker wants to keep with it"},
    {"slower", T_BOOL, offsetof(Entry, slower), 0, "than plain Python: its calls run as written"},
    {"rerun", T_BOOL, offsetof(Entry, rerun), 0, "after an error, run once in plain Python"},
    {"extent", T_BOOL, offsetof(Entry, extent), 0, "plain: look up the frames inside"},
    {"hot_at", T_ULONGLONG, offsetof(Entry, hot_at), 0,
     "code: from so many hits on, ask once for a better entry"},
    {"exits", T_ULONGLONG, offsetof(Entry, exits), READONLY,
     "how often another outcome than assumed occurred"},
    {"otherwise", T_OBJECT, offsetof(Entry, otherwise), READONLY,
     "the entry for other outcomes, or None"},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot entry_slots[] = {
    {Py_tp_new, (void *)entry_new},
    {Py_tp_dealloc, (void *)entry_dealloc},
    {Py_tp_traverse, (void *)entry_traverse},
    {Py_tp_clear, (void *)entry_clear},
    {Py_tp_repr, (void *)entry_repr},
    {Py_tp_getset, entry_getset},
    {Py_tp_methods, entry_methods},
    {Py_tp_members, entry_members},
    {Py_tp_doc,
     (void *)"Entry(kind, guards, target=None, tree=None, n_program_inputs=-1, name='', rows=(), "
             "rerun=False, extent=False): one compiled answer and its guards"},
    {0, nullptr}};

PyType_Spec entry_spec = {"graftjit.runtime._native.Entry", sizeof(Entry), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
                          entry_slots};

// The function of a code entry for these globals and this closure; a new reference.
PyObject *code_function(Entry *entry, const View &view, FunctionCache *cache) {
    if (PyFunction_Check(entry->target)) return Py_NewRef(entry->target);
    PyObject *closure = ((PyCodeObject *)entry->target)->co_nfreevars > 0 ? view.closure : nullptr;
    if (cache != nullptr && cache->entry == (PyObject *)entry &&
        PyFunction_GET_GLOBALS(cache->function) == view.globals &&
        PyFunction_GET_CLOSURE(cache->function) == closure)
        return Py_NewRef(cache->function);
    PyObject *function = make_function(entry->target, view.globals, closure);
    if (function != nullptr && cache != nullptr) {
        // Replace both at once, since dropping the old ones may call this function again.
        Ref old_entry(cache->entry), old_function(cache->function);
        cache->entry = Py_NewRef((PyObject *)entry);
        cache->function = Py_NewRef(function);
    }
    return function;
}

}  // namespace

PyObject *make_function(PyObject *code, PyObject *globals, PyObject *closure) {
    Ref function(PyFunction_New(code, globals));
    if (!function) return nullptr;
    if (closure != nullptr && PyFunction_SetClosure(function.get(), closure) < 0) return nullptr;
    return function.release();
}

PyObject *entry_run_direct(Entry *entry, PyObject *const *inputs, bool *ran) {
    return entry->target_is_program ? run_program(entry, inputs, ran)
                                    : run_python_program(entry, inputs, ran);
}

PyObject *entry_run_code(Entry *entry, const View &view, FunctionCache *cache) {
    Ref function(code_function(entry, view, cache));
    if (!function) return nullptr;
    return call_frame(function.get(), view.locals, (size_t)view.n_locals, nullptr);
}

int entry_init(PyObject *module) {
    entry_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &entry_spec, nullptr);
    return entry_type == nullptr ? -1 : PyModule_AddType(module, entry_type);
}
