#include "guards.h"

#include "tensor.h"

#include <algorithm>
#include <cstring>
#include <string>

PyTypeObject *guard_program_type;

// One load or check. `source` and `other` are registers, `key` the constant that the operation is about.
struct Instruction {
    int op;
    int row;
    int into = -1;
    int source = -1;
    int other = -1;
    Py_ssize_t number = 0;
    Py_hash_t hash = 0;
    PyObject *key = nullptr;
    void *record = nullptr;
    std::vector<int> *registers = nullptr;
};

namespace {

enum Op : int {
    // loads
    LOCAL, GLOBAL, GLOBALS, BUILTIN, CELL, CONST, CONTENTS, TYPE, ATTR, DICT, CLASS_ATTR, MRO_ATTR, SLOT, ITEM,
    KEY, MEMBER,
    // checks
    IS_TYPE, IS, EQUALS, LEN, KEYS, SET, NO_ATTR, NO_ITEM, NO_GLOBAL, NO_CLASS_ATTR, NO_MRO_ATTR, TENSOR, SAME,
    DISTINCT, STATE, UNBOUND_CELL, ABC,
};

// What the constant of an operation is prepared into.
enum class Needs { nothing, number, name, key, object, type, elements, tensor, state, reg, regs };

struct OpLaw {
    const char *name;
    Op op;
    Needs needs;
    bool is_load;
};

const OpLaw LAWS[] = {
    {"local", LOCAL, Needs::number, true},
    {"global", GLOBAL, Needs::name, true},
    {"globals", GLOBALS, Needs::nothing, true},
    {"builtin", BUILTIN, Needs::name, true},
    {"cell", CELL, Needs::number, true},
    {"const", CONST, Needs::object, true},
    {"contents", CONTENTS, Needs::nothing, true},
    {"type", TYPE, Needs::nothing, true},
    {"attr", ATTR, Needs::name, true},
    {"dict", DICT, Needs::nothing, true},
    {"class_attr", CLASS_ATTR, Needs::name, true},
    {"mro_attr", MRO_ATTR, Needs::name, true},
    {"slot", SLOT, Needs::name, true},
    {"item", ITEM, Needs::key, true},
    {"key", KEY, Needs::number, true},
    {"member", MEMBER, Needs::name, true},
    {"check type", IS_TYPE, Needs::object, false},
    {"check is", IS, Needs::object, false},
    {"check equals", EQUALS, Needs::object, false},
    {"check len", LEN, Needs::number, false},
    {"check keys", KEYS, Needs::object, false},
    {"check set", SET, Needs::elements, false},
    {"check no_attr", NO_ATTR, Needs::name, false},
    {"check no_item", NO_ITEM, Needs::key, false},
    {"check no_global", NO_GLOBAL, Needs::name, false},
    {"check no_class_attr", NO_CLASS_ATTR, Needs::name, false},
    {"check no_mro_attr", NO_MRO_ATTR, Needs::name, false},
    {"check tensor", TENSOR, Needs::tensor, false},
    {"check same", SAME, Needs::reg, false},
    {"check distinct", DISTINCT, Needs::regs, false},
    {"check state", STATE, Needs::state, false},
    {"check unbound_cell", UNBOUND_CELL, Needs::nothing, false},
    {"check abc", ABC, Needs::object, false},
};

const OpLaw *find_law(const char *name) {
    for (const OpLaw &law : LAWS)
        if (strcmp(law.name, name) == 0) return &law;
    return nullptr;
}

// --- members: fields of exact builtin types --------------------------------------------------------------

struct MemberLaw {
    PyTypeObject *type;
    const char *names;  // each between spaces
};

// For these types a plain getattr reads a C-level field or a getset of CPython's own.
bool is_member(PyTypeObject *type, PyObject *name) {
    static const MemberLaw members[] = {
        {&PyFunction_Type, " __code__ __defaults__ __kwdefaults__ __closure__ __globals__ __dict__ "},
        {&PyMethod_Type, " __func__ __self__ "},
        {&PyProperty_Type, " fget fset fdel "},
        {&PyClassMethod_Type, " __func__ __wrapped__ "},
        {&PyStaticMethod_Type, " __func__ __wrapped__ "},
        {&PyCFunction_Type, " __self__ "},
    };
    const char *text = PyUnicode_AsUTF8(name);
    if (text == nullptr) {
        PyErr_Clear();
        return false;
    }
    std::string word = std::string(" ") + text + " ";
    for (const MemberLaw &law : members)
        if (law.type == type) return strstr(law.names, word.c_str()) != nullptr;
    return type == known.partial && type != nullptr && strstr(" func args keywords ", word.c_str()) != nullptr;
}

// The fields that hot paths read, without a look-up; null in `*found` means "ask getattr".
PyObject *function_member(PyFunctionObject *function, PyObject *name) {
    auto is = [name](const char *text) { return PyUnicode_CompareWithASCIIString(name, text) == 0; };
    PyObject *field = nullptr;
    if (is("__code__")) return function->func_code;
    if (is("__globals__")) return function->func_globals;
    if (is("__defaults__")) field = function->func_defaults;
    else if (is("__kwdefaults__")) field = function->func_kwdefaults;
    else if (is("__closure__")) field = function->func_closure;
    else return nullptr;
    return field == nullptr ? Py_None : field;
}

// --- one run ------------------------------------------------------------------------------------------------

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

PyObject *builtins_of(const View &view) {
    if (view.builtins != nullptr) return view.builtins;
    static PyObject *name = PyUnicode_InternFromString("__builtins__");
    PyObject *found = dict_find(view.globals, name, PyObject_Hash(name));
    if (found == nullptr) return PyEval_GetBuiltins();
    return PyModule_Check(found) ? PyModule_GetDict(found) : found;
}

PyObject *load_member(Run &run, PyObject *base, PyObject *name, Py_hash_t hash) {
    PyTypeObject *type = Py_TYPE(base);
    if (type == &PyFunction_Type) {
        if (PyObject *field = function_member((PyFunctionObject *)base, name)) return field;
        if (PyUnicode_CompareWithASCIIString(name, "__wrapped__") == 0)
            return instance_attribute(base, name, hash);
    }
    if (!is_member(type, name)) return nullptr;
    return run.keep(PyObject_GetAttr(base, name));
}

PyObject *load_slot(Run &run, PyObject *base, PyObject *name) {
    PyObject *descriptor = _PyType_Lookup(Py_TYPE(base), name);
    if (descriptor == nullptr || Py_TYPE(descriptor) != &PyMemberDescr_Type) return nullptr;
    if (!PyObject_TypeCheck(base, PyDescr_TYPE(descriptor))) return nullptr;
    return run.keep(PyMemberDescr_Type.tp_descr_get(descriptor, base, (PyObject *)Py_TYPE(base)));
}

PyObject *load_item(PyObject *base, const Instruction &at) {
    if (PyDict_Check(base) || Py_TYPE(base) == &PyDictProxy_Type) {
        PyObject *dict = dict_part(base);
        return dict == nullptr ? nullptr : dict_find_any(dict, at.key, at.hash);
    }
    if (Py_TYPE(at.key) != &PyLong_Type || at.number < 0) return nullptr;
    if (PyList_Check(base)) return at.number < PyList_GET_SIZE(base) ? PyList_GET_ITEM(base, at.number) : nullptr;
    if (PyTuple_Check(base))
        return at.number < PyTuple_GET_SIZE(base) ? PyTuple_GET_ITEM(base, at.number) : nullptr;
    return nullptr;
}

PyObject *nth_key(PyObject *base, Py_ssize_t n) {
    PyObject *dict = dict_part(base), *key = nullptr;
    Py_ssize_t position = 0;
    if (dict == nullptr || n < 0) return nullptr;
    for (Py_ssize_t i = 0; i <= n; i++)
        if (!PyDict_Next(dict, &position, &key, nullptr)) return nullptr;
    return key;
}

// A borrowed reference that lives as long as the run, or null if the path cannot be walked.
PyObject *load(Run &run, const Instruction &at) {
    const View &view = run.view;
    PyObject *base = at.source < 0 ? nullptr : run.registers[at.source];
    switch (at.op) {
        case LOCAL: return at.number >= 0 && at.number < view.n_locals ? view.locals[at.number] : nullptr;
        case GLOBAL: return dict_find(view.globals, at.key, at.hash);
        case GLOBALS: return view.globals;
        case BUILTIN: {
            PyObject *builtins = builtins_of(view);
            return builtins != nullptr && PyDict_Check(builtins) ? dict_find(builtins, at.key, at.hash) : nullptr;
        }
        case CELL:
            if (view.closure == nullptr || at.number < 0 || at.number >= PyTuple_GET_SIZE(view.closure))
                return nullptr;
            return PyTuple_GET_ITEM(view.closure, at.number);
        case CONST: return at.key;
        case CONTENTS: return PyCell_Check(base) ? PyCell_GET(base) : nullptr;
        case TYPE: return (PyObject *)Py_TYPE(base);
        case ATTR: return instance_attribute(base, at.key, at.hash);
        case DICT: return run.keep(instance_dict(base));
        case CLASS_ATTR: return _PyType_Lookup(Py_TYPE(base), at.key);
        case MRO_ATTR: return PyType_Check(base) ? _PyType_Lookup((PyTypeObject *)base, at.key) : nullptr;
        case SLOT: return load_slot(run, base, at.key);
        case ITEM: return load_item(base, at);
        case KEY: return nth_key(base, at.number);
        case MEMBER: return load_member(run, base, at.key, at.hash);
        default: return nullptr;
    }
}

bool keys_hold(PyObject *value, PyObject *expected) {
    PyObject *dict = dict_part(value), *key;
    Py_ssize_t position = 0, i = 0, n = PyTuple_GET_SIZE(expected);
    if (dict == nullptr || ((PyDictObject *)dict)->ma_used != n) return false;
    while (PyDict_Next(dict, &position, &key, nullptr)) {
        if (i >= n || !same_constant(key, PyTuple_GET_ITEM(expected, i))) return false;
        i++;
    }
    return i == n;
}

// Elements of the expected set, sorted by hash.
using Elements = std::vector<std::pair<Py_hash_t, PyObject *>>;

bool elements_hold(PyObject *value, const Elements &expected) {
    if (!PyAnySet_Check(value)) return false;
    auto *set = (PySetObject *)value;
    if ((size_t)set->used != expected.size()) return false;
    for (Py_ssize_t i = 0; i <= set->mask; i++) {
        setentry *element = &set->table[i];
        if (element->key == nullptr || element->hash == -1) continue;
        auto at = std::lower_bound(expected.begin(), expected.end(), std::pair{element->hash, (PyObject *)nullptr});
        bool found = false;
        for (; at != expected.end() && at->first == element->hash && !found; ++at)
            found = same_constant(element->key, at->second);
        if (!found) return false;
    }
    return true;
}

bool all_distinct(PyObject **registers, const std::vector<int> &which) {
    for (size_t i = 0; i < which.size(); i++) {
        PyObject *left = registers[which[i]];
        bool tensor = tensor_is_tensor(left);
        for (size_t j = 0; j < i; j++) {
            PyObject *right = registers[which[j]];
            if (left == right) return false;
            if (tensor && tensor_is_tensor(right) && tensor_overlap(left, right)) return false;
        }
    }
    return true;
}

bool token_holds(PyObject *expected) {
    if (known.abc_token == nullptr) return false;
    Ref token(PyObject_CallNoArgs(known.abc_token));
    if (!token) PyErr_Clear();
    return token && same_constant(token.get(), expected);
}

bool holds(Run &run, const Instruction &at) {
    PyObject *value = at.source < 0 ? nullptr : run.registers[at.source];
    switch (at.op) {
        case IS_TYPE: return (PyObject *)Py_TYPE(value) == at.key;
        case IS: return value == at.key;
        case EQUALS: return same_constant(value, at.key);
        case LEN: return builtin_length(value) == at.number;
        case KEYS: return keys_hold(value, at.key);
        case SET: return elements_hold(value, *(const Elements *)at.record);
        case NO_ATTR: return instance_attribute(value, at.key, at.hash) == nullptr;
        case NO_ITEM: {
            PyObject *dict = dict_part(value);
            return dict != nullptr && dict_find_any(dict, at.key, at.hash) == nullptr;
        }
        case NO_GLOBAL: return dict_find(run.view.globals, at.key, at.hash) == nullptr;
        case NO_CLASS_ATTR: return _PyType_Lookup(Py_TYPE(value), at.key) == nullptr;
        case NO_MRO_ATTR: return PyType_Check(value) && _PyType_Lookup((PyTypeObject *)value, at.key) == nullptr;
        case TENSOR: return tensor_record_matches((const TensorRecord *)at.record, value);
        case SAME: return value == run.registers[at.other];
        case DISTINCT: return all_distinct(run.registers, *at.registers);
        case STATE: return state_record_matches((const StateRecord *)at.record);
        case UNBOUND_CELL: return PyCell_Check(value) && PyCell_GET(value) == nullptr;
        case ABC: return token_holds(at.key);
        default: return false;
    }
}

int run_all(GuardProgram *program, Run &run) {
    for (const Instruction &at : *program->code) {
        if (at.op < IS_TYPE) {
            PyObject *value = load(run, at);
            if (value == nullptr) return at.row;
            run.registers[at.into] = value;
        } else if (!holds(run, at)) {
            return at.row;
        }
    }
    return -1;
}

// --- construction -------------------------------------------------------------------------------------------

bool read_registers(PyObject *tuple, std::vector<int> &registers, int n_registers) {
    Ref items(PySequence_Tuple(tuple));
    if (!items) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); i++) {
        long number = PyLong_AsLong(PyTuple_GET_ITEM(items.get(), i));
        if (number == -1 && PyErr_Occurred()) return false;
        if (number < 0 || number >= n_registers) {
            PyErr_Format(PyExc_ValueError, "guard program: no register %ld", number);
            return false;
        }
        registers.push_back((int)number);
    }
    return true;
}

bool prepare_elements(Instruction &at, PyObject *expected) {
    if (!PyAnySet_Check(expected)) {
        PyErr_SetString(PyExc_TypeError, "guard program: a 'set' row expects a frozenset");
        return false;
    }
    auto *set = (PySetObject *)expected;
    auto *elements = new Elements();
    for (Py_ssize_t i = 0; i <= set->mask; i++)
        if (set->table[i].key != nullptr && set->table[i].hash != -1)
            elements->emplace_back(set->table[i].hash, set->table[i].key);
    std::sort(elements->begin(), elements->end());
    at.record = elements;
    return true;
}

bool expect_kind(bool right, const char *op, const char *kind) {
    if (!right) PyErr_Format(PyExc_TypeError, "guard program: '%s' expects %s", op, kind);
    return right;
}

// Turns the constant of one operation into what a run needs. `at.key` holds a strong reference already.
bool prepare(Instruction &at, const OpLaw &law, PyObject *key, int n_registers) {
    switch (law.needs) {
        case Needs::number:
            at.number = PyLong_AsSsize_t(key);
            return !(at.number == -1 && PyErr_Occurred());
        case Needs::name:
            if (!expect_kind(PyUnicode_CheckExact(key), law.name, "a str")) return false;
            at.hash = PyObject_Hash(key);
            PyUnicode_InternInPlace(&at.key);
            return true;
        case Needs::key:
            if (PyLong_CheckExact(key)) {
                at.number = PyLong_AsSsize_t(key);
                if (at.number == -1 && PyErr_Occurred()) PyErr_Clear();
            }
            if (hashes_safely(key)) at.hash = PyObject_Hash(key);
            return true;
        case Needs::elements: return prepare_elements(at, key);
        case Needs::tensor:
            at.record = tensor_record_new(key);
            return at.record != nullptr;
        case Needs::state:
            at.record = state_record_new(key);
            return at.record != nullptr;
        case Needs::reg:
            at.other = (int)PyLong_AsLong(key);
            if (at.other == -1 && PyErr_Occurred()) return false;
            return expect_kind(at.other >= 0 && at.other < n_registers, law.name, "a register");
        case Needs::regs:
            at.registers = new std::vector<int>();
            return read_registers(key, *at.registers, n_registers);
        default:
            if (law.op == KEYS) return expect_kind(PyTuple_Check(key), law.name, "a tuple");
            return true;
    }
}

// One instruction from (op name, row, into, source, key).
bool add_instruction(GuardProgram *self, PyObject *item) {
    const char *name;
    PyObject *key;
    Instruction at{};
    if (!expect_kind(PyTuple_Check(item), "instructions", "tuples")) return false;
    if (!PyArg_ParseTuple(item, "siiiO", &name, &at.row, &at.into, &at.source, &key)) return false;
    const OpLaw *law = find_law(name);
    if (law == nullptr) {
        PyErr_Format(PyExc_ValueError, "guard program: no operation '%s'", name);
        return false;
    }
    int n = self->n_registers;
    if (at.into >= n || at.source >= n || (law->is_load && at.into < 0)) {
        PyErr_Format(PyExc_ValueError, "guard program: '%s' names no register", name);
        return false;
    }
    bool rootless = law->op <= CONST || law->op == NO_GLOBAL || law->op == DISTINCT || law->op == STATE ||
                    law->op == ABC;
    if (!rootless && at.source < 0) {
        PyErr_Format(PyExc_ValueError, "guard program: '%s' needs a source", name);
        return false;
    }
    at.op = law->op;
    at.key = Py_NewRef(key);
    self->code->push_back(at);
    if (law->op == DICT || law->op == SLOT || law->op == MEMBER) self->n_owned++;
    return prepare(self->code->back(), *law, key, n);
}

PyObject *guards_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"instructions", "n_registers", "inputs", "n_rows", nullptr};
    PyObject *instructions, *inputs;
    int n_registers, n_rows;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!iOi", (char **)names, &PyTuple_Type, &instructions,
                                     &n_registers, &inputs, &n_rows))
        return nullptr;
    auto *self = (GuardProgram *)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->code = new std::vector<Instruction>();
    self->inputs = new std::vector<int>();
    self->n_registers = n_registers;
    self->n_rows = n_rows;
    bool fine = true;
    for (Py_ssize_t i = 0; fine && i < PyTuple_GET_SIZE(instructions); i++)
        fine = add_instruction(self, PyTuple_GET_ITEM(instructions, i));
    if (fine && read_registers(inputs, *self->inputs, n_registers)) return (PyObject *)self;
    Py_DECREF(self);
    return nullptr;
}

int guards_traverse(GuardProgram *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    if (self->code != nullptr)
        for (const Instruction &at : *self->code) Py_VISIT(at.key);
    return 0;
}

int guards_clear(GuardProgram *self) {
    if (self->code == nullptr) return 0;
    std::vector<Instruction> *code = self->code;
    self->code = new std::vector<Instruction>();
    for (Instruction &at : *code) {
        if (at.op == SET) delete (Elements *)at.record;
        if (at.op == TENSOR && at.record != nullptr) tensor_record_free((TensorRecord *)at.record);
        if (at.op == STATE && at.record != nullptr) state_record_free((StateRecord *)at.record);
        delete at.registers;
        Py_XDECREF(at.key);
    }
    delete code;
    return 0;
}

void guards_dealloc(GuardProgram *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    guards_clear(self);
    delete self->code;
    delete self->inputs;
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

// check(locals, globals, closure=None) -> -1 or the row that failed
PyObject *guards_check_method(GuardProgram *self, PyObject *args) {
    PyObject *locals, *globals, *closure = Py_None;
    if (!PyArg_ParseTuple(args, "O!O!|O", &PyTuple_Type, &locals, &PyDict_Type, &globals, &closure)) return nullptr;
    View view{&PyTuple_GET_ITEM(locals, 0), PyTuple_GET_SIZE(locals), globals, nullptr,
              PyTuple_Check(closure) ? closure : nullptr};
    return PyLong_FromLong(guards_check(self, view, nullptr));
}

// gather(locals, globals, closure=None) -> the tuple of inputs, or None
PyObject *guards_gather_method(GuardProgram *self, PyObject *args) {
    PyObject *locals, *globals, *closure = Py_None;
    if (!PyArg_ParseTuple(args, "O!O!|O", &PyTuple_Type, &locals, &PyDict_Type, &globals, &closure)) return nullptr;
    View view{&PyTuple_GET_ITEM(locals, 0), PyTuple_GET_SIZE(locals), globals, nullptr,
              PyTuple_Check(closure) ? closure : nullptr};
    Ref inputs(PyTuple_New(guards_n_inputs(self)));
    if (!inputs) return nullptr;
    if (guards_check(self, view, &PyTuple_GET_ITEM(inputs.get(), 0)) >= 0) Py_RETURN_NONE;
    return inputs.release();
}

PyObject *guards_get_n_rows(GuardProgram *self, void *) { return PyLong_FromLong(self->n_rows); }
PyObject *guards_get_size(GuardProgram *self, void *) { return PyLong_FromSize_t(self->code->size()); }

PyMethodDef guards_methods[] = {
    {"check", (PyCFunction)guards_check_method, METH_VARARGS,
     "check(locals, globals, closure=None) -> -1 if all rows hold, else the index of the first that does not"},
    {"gather", (PyCFunction)guards_gather_method, METH_VARARGS,
     "gather(locals, globals, closure=None) -> the values of the input sources, or None if a row fails"},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef guards_getset[] = {
    {"n_rows", (getter)guards_get_n_rows, nullptr, "how many rows it was compiled from", nullptr},
    {"size", (getter)guards_get_size, nullptr, "how many loads and checks it has", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot guards_slots[] = {
    {Py_tp_new, (void *)guards_new},
    {Py_tp_dealloc, (void *)guards_dealloc},
    {Py_tp_traverse, (void *)guards_traverse},
    {Py_tp_clear, (void *)guards_clear},
    {Py_tp_methods, guards_methods},
    {Py_tp_getset, guards_getset},
    {Py_tp_doc, (void *)"GuardProgram(instructions, n_registers, inputs, n_rows): rows compiled to loads and checks"},
    {0, nullptr}};

PyType_Spec guards_spec = {"graftjit.runtime._native.GuardProgram", sizeof(GuardProgram), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, guards_slots};

// set_known_types(size=, device=): torch's types that constants are made of
PyObject *set_known_types(PyObject *, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"size", "device", nullptr};
    PyObject *size, *device;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!", (char **)names, &PyType_Type, &size, &PyType_Type,
                                     &device))
        return nullptr;
    known.size = (PyTypeObject *)Py_NewRef(size);
    known.device = (PyTypeObject *)Py_NewRef(device);
    Py_RETURN_NONE;
}

PyMethodDef module_methods[] = {
    {"set_known_types", (PyCFunction)(void (*)(void))set_known_types, METH_VARARGS | METH_KEYWORDS,
     "set_known_types(size, device): torch.Size and torch.device, compared by value in guards"},
    {nullptr, nullptr, 0, nullptr}};

PyObject *import_from(const char *module, const char *name) {
    Ref imported(PyImport_ImportModule(module));
    return imported ? PyObject_GetAttrString(imported.get(), name) : nullptr;
}

}  // namespace

int guards_check(GuardProgram *program, const View &view, PyObject **inputs) {
    constexpr int SMALL = 96;
    PyObject *small[SMALL];
    int need = program->n_registers + program->n_owned;
    std::vector<PyObject *> large;
    PyObject **registers = small;
    if (need > SMALL) {
        large.resize(need);
        registers = large.data();
    }
    Run run{view, registers, registers + program->n_registers};
    int verdict = run_all(program, run);
    if (verdict < 0 && inputs != nullptr)
        for (size_t i = 0; i < program->inputs->size(); i++)
            inputs[i] = Py_NewRef(registers[(*program->inputs)[i]]);
    for (int i = 0; i < run.n_owned; i++) Py_DECREF(run.owned[i]);
    return verdict;
}

int guards_init(PyObject *module) {
    known.deque = (PyTypeObject *)import_from("collections", "deque");
    known.partial = (PyTypeObject *)import_from("functools", "partial");
    known.abc_token = import_from("abc", "get_cache_token");
    if (known.deque == nullptr || known.partial == nullptr || known.abc_token == nullptr) return -1;
    guard_program_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &guards_spec, nullptr);
    if (guard_program_type == nullptr || PyModule_AddType(module, guard_program_type) < 0) return -1;
    return PyModule_AddFunctions(module, module_methods);
}
