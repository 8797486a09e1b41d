// The type GuardProgram. Instructions are checked and prepared here, so that a run need not do it.
#include "guards/guard_program.h"

#include "guards/heap_guards.h"
#include "guards/guard_instructions.h"
#include "guards/relations.h"
#include "tensors/tensor.h"
#include "guards/value.h"

#include <algorithm>
#include <cstring>

PyTypeObject *guard_program_type, *weak_type;

namespace {

// The prepared form of an operation's constant.
enum class Needs {
    nothing,
    number,
    name,
    key,
    object,
    type,
    elements,
    tensor,
    state,
    reg,
    regs,
    range,
    relation,
    value
};

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
    {"context", CONTEXT, Needs::object, true},
    {"const", CONST, Needs::object, true},
    {"contents", CONTENTS, Needs::nothing, true},
    {"referent", REFERENT, Needs::nothing, true},
    {"type", TYPE, Needs::nothing, true},
    {"attr", ATTR, Needs::name, true},
    {"dict", DICT, Needs::nothing, true},
    {"class_attr", CLASS_ATTR, Needs::name, true},
    {"mro_attr", MRO_ATTR, Needs::name, true},
    {"slot", SLOT, Needs::name, true},
    {"item", ITEM, Needs::key, true},
    {"key", KEY, Needs::number, true},
    {"member", MEMBER, Needs::name, true},
    {"grad", GRAD, Needs::nothing, true},
    {"iterated", ITERATED, Needs::number, true},
    {"check type", IS_TYPE, Needs::object, false},
    {"check is", IS, Needs::object, false},
    {"check equals", EQUALS, Needs::object, false},
    {"check len", LEN, Needs::number, false},
    {"check keys", KEYS, Needs::object, false},
    {"check set", SET, Needs::elements, false},
    {"check element", ELEMENT, Needs::object, false},
    {"check no_element", NO_ELEMENT, Needs::object, false},
    {"check no_attr", NO_ATTR, Needs::name, false},
    {"check no_item", NO_ITEM, Needs::key, false},
    {"check no_global", NO_GLOBAL, Needs::name, false},
    {"check no_class_attr", NO_CLASS_ATTR, Needs::name, false},
    {"check no_mro_attr", NO_MRO_ATTR, Needs::name, false},
    {"check mro", MRO, Needs::object, false},
    {"check tensor", TENSOR, Needs::tensor, false},
    {"check same", SAME, Needs::reg, false},
    {"check distinct", DISTINCT, Needs::regs, false},
    {"check own_dict", OWN_DICT, Needs::regs, false},
    {"check history", HISTORY, Needs::name, false},
    {"check unhooked", UNHOOKED, Needs::nothing, false},
    {"check state", STATE, Needs::state, false},
    {"check unbound_cell", UNBOUND_CELL, Needs::nothing, false},
    {"check abc", ABC, Needs::object, false},
    {"check unhandled", UNHANDLED, Needs::nothing, false},
    {"check nested", NESTED, Needs::object, false},
    {"check device", DEVICE, Needs::object, false},
    {"check position", POSITION, Needs::number, false},
    {"check number", NUMBER, Needs::range, false},
    {"check relation", RELATION, Needs::relation, false},
    {"check value", VALUE, Needs::value, false},
};

const OpLaw *find_law(const char *name) {
    for (const OpLaw &law : LAWS)
        if (strcmp(law.name, name) == 0) return &law;
    return nullptr;
}

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

// Prepares the constant of one operation for runs. `at.key` already holds a strong reference.
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
            if (PyObject *meant = given(at); meant != nullptr && hashes_safely(meant))
                at.hash = PyObject_Hash(meant);
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
        case Needs::range:
            return expect_kind(PyTuple_Check(key) && PyTuple_GET_SIZE(key) == 3, law.name,
                               "(type, low, high)");
        case Needs::relation:
            at.record = relation_record_new(key, n_registers);
            if (at.record == nullptr) return false;
            at.registers =
                new std::vector<int>(relation_registers((const RelationRecord *)at.record));
            return true;
        case Needs::value:
            at.record = value_record_new(key, n_registers);
            return at.record != nullptr;
        default:
            if (law.op == KEYS) return expect_kind(PyTuple_Check(key), law.name, "a tuple");
            return true;
    }
}

// Adds an instruction from (op name, row, into, source, key).
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
    bool rootless = law->op <= CONST || law->op == NO_GLOBAL || law->op == DISTINCT ||
                    law->op == STATE || law->op == ABC || law->op == UNHANDLED ||
                    law->op == NESTED || law->op == DEVICE || law->op == RELATION ||
                    law->op == VALUE;
    if (!rootless && at.source < 0) {
        PyErr_Format(PyExc_ValueError, "guard program: '%s' needs a source", name);
        return false;
    }
    at.op = law->op;
    at.key = Py_NewRef(key);
    at.weak = is_weak(key);
    self->code->push_back(at);
    if (law->op == DICT || law->op == SLOT || law->op == MEMBER || law->op == REFERENT ||
        law->op == GRAD || law->op == CONTEXT)
        self->n_owned++;
    return prepare(self->code->back(), *law, key, n);
}

PyObject *guards_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"instructions", "n_registers", "inputs", "n_rows", nullptr};
    PyObject *instructions, *inputs;
    int n_registers, n_rows;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!iOi", (char **)names, &PyTuple_Type,
                                     &instructions, &n_registers, &inputs, &n_rows))
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
    if (fine && read_registers(inputs, *self->inputs, n_registers)) {
        self->heap = heap_new(self);
        return (PyObject *)self;
    }
    Py_DECREF(self);
    return nullptr;
}

int guards_traverse(GuardProgram *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    if (self->code != nullptr)
        for (const Instruction &at : *self->code) Py_VISIT(at.key);
    if (self->heap != nullptr)
        for (const auto &armed : self->heap->armed)
            for (PyObject *pin : armed->pins) Py_VISIT(pin);
    return 0;
}

int guards_clear(GuardProgram *self) {
    if (self->code == nullptr) return 0;
    std::vector<Instruction> *code = self->code;
    self->code = new std::vector<Instruction>();
    Heap *heap = std::exchange(self->heap, nullptr);
    delete heap;
    for (Instruction &at : *code) {
        if (at.op == SET) delete (Elements *)at.record;
        if (at.op == TENSOR && at.record != nullptr) tensor_record_free((TensorRecord *)at.record);
        if (at.op == RELATION && at.record != nullptr)
            relation_record_free((RelationRecord *)at.record);
        if (at.op == VALUE && at.record != nullptr) value_record_free((ValueRecord *)at.record);
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

// check(locals, globals, closure=None) -> -1, or the row that failed
PyObject *guards_check_method(GuardProgram *self, PyObject *args) {
    PyObject *locals, *globals, *closure = Py_None;
    if (!PyArg_ParseTuple(args, "O!O!|O", &PyTuple_Type, &locals, &PyDict_Type, &globals, &closure))
        return nullptr;
    View view{&PyTuple_GET_ITEM(locals, 0), PyTuple_GET_SIZE(locals), globals, nullptr,
              PyTuple_Check(closure) ? closure : nullptr};
    return PyLong_FromLong(guards_check(self, view, nullptr, true));
}

// gather(locals, globals, closure=None) -> the tuple of inputs, or None
PyObject *guards_gather_method(GuardProgram *self, PyObject *args) {
    PyObject *locals, *globals, *closure = Py_None;
    if (!PyArg_ParseTuple(args, "O!O!|O", &PyTuple_Type, &locals, &PyDict_Type, &globals, &closure))
        return nullptr;
    View view{&PyTuple_GET_ITEM(locals, 0), PyTuple_GET_SIZE(locals), globals, nullptr,
              PyTuple_Check(closure) ? closure : nullptr};
    Ref inputs(PyTuple_New(guards_n_inputs(self)));
    if (!inputs) return nullptr;
    if (guards_check(self, view, &PyTuple_GET_ITEM(inputs.get(), 0), true) >= 0) Py_RETURN_NONE;
    return inputs.release();
}

PyObject *guards_get_n_rows(GuardProgram *self, void *) { return PyLong_FromLong(self->n_rows); }
PyObject *guards_get_remembered(GuardProgram *self, void *) {
    return PyLong_FromSize_t(self->heap == nullptr ? 0 : self->heap->armed.size());
}
PyObject *guards_get_size(GuardProgram *self, void *) {
    return PyLong_FromSize_t(self->code->size());
}

PyMethodDef guards_methods[] = {
    {"check", (PyCFunction)guards_check_method, METH_VARARGS,
     "check(locals, globals, closure=None) -> -1 if all rows hold, else the index of the first that does not"},
    {"gather", (PyCFunction)guards_gather_method, METH_VARARGS,
     "gather(locals, globals, closure=None) -> the values of the input sources, or None if a row fails"},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef guards_getset[] = {
    {"n_rows", (getter)guards_get_n_rows, nullptr, "how many rows it was compiled from", nullptr},
    {"remembered", (getter)guards_get_remembered, nullptr,
     "for how many objects that calls began at the heap is known", nullptr},
    {"size", (getter)guards_get_size, nullptr, "how many loads and checks it has", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot guards_slots[] = {
    {Py_tp_new, (void *)guards_new},
    {Py_tp_dealloc, (void *)guards_dealloc},
    {Py_tp_traverse, (void *)guards_traverse},
    {Py_tp_clear, (void *)guards_clear},
    {Py_tp_methods, guards_methods},
    {Py_tp_getset, guards_getset},
    {Py_tp_doc,
     (void *)"GuardProgram(instructions, n_registers, inputs, n_rows): rows compiled to loads and checks"},
    {0, nullptr}};

PyType_Spec guards_spec = {"graftjit.runtime._native.GuardProgram", sizeof(GuardProgram), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
                           guards_slots};

// set_known_types(size=, device=, scalars=, weak=): types of torch and numpy for constants, and Weak
PyObject *set_known_types(PyObject *, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"size", "device", "scalars", "weak", nullptr};
    PyObject *size, *device, *scalars, *weak;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!O!", (char **)names, &PyType_Type, &size,
                                     &PyType_Type, &device, &PyTuple_Type, &scalars, &PyType_Type,
                                     &weak))
        return nullptr;
    weak_type = (PyTypeObject *)Py_NewRef(weak);
    known.size = (PyTypeObject *)Py_NewRef(size);
    known.device = (PyTypeObject *)Py_NewRef(device);
    known.scalars = Py_NewRef(scalars);
    Py_RETURN_NONE;
}

// look_up(dict or mapping proxy, key) -> (value,) if found, () if absent, None if only a user's
// __eq__ could decide
PyObject *look_up(PyObject *, PyObject *args) {
    PyObject *dict, *key;
    if (!PyArg_ParseTuple(args, "OO", &dict, &key)) return nullptr;
    dict = dict_part(dict);
    if (dict == nullptr) return PyErr_Format(PyExc_TypeError, "look_up() takes a dict");
    Py_hash_t hash = hashes_safely(key) ? PyObject_Hash(key) : 0;
    PyObject *found = dict_find_any(dict, key, hash);
    if (found != nullptr) return PyTuple_Pack(1, found);
    if (dict_lacks_any(dict, key, hash)) return PyTuple_New(0);
    Py_RETURN_NONE;
}

PyMethodDef module_methods[] = {
    {"look_up", look_up, METH_VARARGS,
     "look_up(dict, key) -> (value,) if found, () if absent, None if only the __eq__ of a key's class could tell"},
    {"set_known_types", (PyCFunction)(void (*)(void))set_known_types, METH_VARARGS | METH_KEYWORDS,
     "set_known_types(size, device, scalars, weak): torch.Size, torch.device and numpy's scalars, compared by value, and the class of weak references in guards"},
    {nullptr, nullptr, 0, nullptr}};

PyObject *import_from(const char *module, const char *name) {
    Ref imported(PyImport_ImportModule(module));
    return imported ? PyObject_GetAttrString(imported.get(), name) : nullptr;
}

}  // namespace

int guards_init(PyObject *module) {
    known.deque = (PyTypeObject *)import_from("collections", "deque");
    known.partial = (PyTypeObject *)import_from("functools", "partial");
    known.abc_token = import_from("abc", "get_cache_token");
    if (known.deque == nullptr || known.partial == nullptr || known.abc_token == nullptr) return -1;
    guard_program_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &guards_spec, nullptr);
    if (guard_program_type == nullptr || PyModule_AddType(module, guard_program_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, module_methods);
}
