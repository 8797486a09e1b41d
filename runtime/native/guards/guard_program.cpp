#include "guards/guard_program.h"

#include "guards/heap_guards.h"
#include "guards/guard_instructions.h"
#include "guards/iterators.h"
#include "guards/relations.h"
#include "tensors/history.h"
#include "tensors/tensor.h"
#include "guards/value.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

PyObject *builtins_of(const View &view) {
    if (view.builtins != nullptr) return view.builtins;
    static PyObject *name = PyUnicode_InternFromString("__builtins__");
    PyObject *found = dict_find(view.globals, name, PyObject_Hash(name));
    if (found == nullptr) return PyEval_GetBuiltins();
    return PyModule_Check(found) ? PyModule_GetDict(found) : found;
}

namespace {

// --- members: fields of exact builtin types ------------------------------------------------------

struct MemberLaw {
    PyTypeObject *type;
    const char *names;  // separated and enclosed by spaces
};

// For these types a plain getattr reads a C field or a getset descriptor of CPython itself.
bool is_member(PyTypeObject *type, PyObject *name) {
    static const MemberLaw members[] = {
        {&PyFunction_Type,
         " __code__ __defaults__ __kwdefaults__ __closure__ __globals__ __dict__"
         " __name__ __qualname__ __module__ __doc__ __annotations__ __type_params__ "},
        {&PyMethod_Type, " __func__ __self__ "},
        {&PyProperty_Type, " fget fset fdel "},
        {&PyClassMethod_Type, " __func__ __wrapped__ "},
        {&PyStaticMethod_Type, " __func__ __wrapped__ "},
        {&PyCFunction_Type, " __self__ __name__ "},
    };
    const char *text = PyUnicode_AsUTF8(name);
    if (text == nullptr) {
        PyErr_Clear();
        return false;
    }
    std::string word = std::string(" ") + text + " ";
    for (const MemberLaw &law : members)
        if (law.type == type) return strstr(law.names, word.c_str()) != nullptr;
    const char *names = type == known.partial ? " func args keywords "
                        : type == known.deque ? " maxlen "
                                              : "";
    return strstr(names, word.c_str()) != nullptr;
}

// __name__ or __qualname__ of a class, read by `type` itself, whatever its metaclass defines.
PyObject *class_name(PyObject *cls, PyObject *name) {
    Ref own(class_dict(&PyType_Type));
    PyObject *field = own ? PyDict_GetItemWithError(own.get(), name) : nullptr;
    const char *text = PyUnicode_AsUTF8(name);
    bool known =
        text != nullptr && (strcmp(text, "__name__") == 0 || strcmp(text, "__qualname__") == 0);
    if (!known || field == nullptr || Py_TYPE(field)->tp_descr_get == nullptr) return nullptr;
    return Py_TYPE(field)->tp_descr_get(field, cls, (PyObject *)Py_TYPE(cls));
}

// The fields that hot paths read, without a look-up; null: use getattr.
PyObject *function_member(PyFunctionObject *function, PyObject *name) {
    auto is = [name](const char *text) {
        return PyUnicode_CompareWithASCIIString(name, text) == 0;
    };
    PyObject *field = nullptr;
    if (is("__code__")) return function->func_code;
    if (is("__globals__")) return function->func_globals;
    if (is("__defaults__")) field = function->func_defaults;
    else if (is("__kwdefaults__")) field = function->func_kwdefaults;
    else if (is("__closure__")) field = function->func_closure;
    else return nullptr;
    return field == nullptr ? Py_None : field;
}

// --- one run -------------------------------------------------------------------------------------

PyObject *load_member(Run &run, PyObject *base, PyObject *name, Py_hash_t hash) {
    PyTypeObject *type = Py_TYPE(base);
    if (type == &PyFunction_Type) {
        if (PyObject *field = function_member((PyFunctionObject *)base, name)) return field;
        if (PyUnicode_CompareWithASCIIString(name, "__wrapped__") == 0)
            return instance_attribute(base, name, hash);
    }
    if (PyType_Check(base)) return run.keep(class_name(base, name));
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
        PyObject *dict = dict_part(base), *key = given(at);
        return dict == nullptr || key == nullptr ? nullptr : dict_find_any(dict, key, at.hash);
    }
    if (Py_TYPE(at.key) != &PyLong_Type || at.number < 0) return nullptr;
    if (PyList_Check(base))
        return at.number < PyList_GET_SIZE(base) ? PyList_GET_ITEM(base, at.number) : nullptr;
    if (PyTuple_Check(base))
        return at.number < PyTuple_GET_SIZE(base) ? PyTuple_GET_ITEM(base, at.number) : nullptr;
    return nullptr;
}

// Calls `visit(i, key)` for the keys of an OrderedDict in its own order, which its dict does not
// have, until it returns false.
template <class Visit> bool each_ordered_key(PyObject *value, Visit visit) {
    Ref keys(PyODict_Type.tp_iter(value));
    for (Py_ssize_t i = 0; keys; i++) {
        Ref key(PyIter_Next(keys.get()));
        if (!key) break;
        if (!visit(i, key.get())) return false;
    }
    // The OrderedDict was changed by dict's own methods.
    bool failed = PyErr_Occurred() != nullptr;
    PyErr_Clear();
    return !failed;
}

PyObject *nth_key(PyObject *base, Py_ssize_t n) {
    PyObject *dict = dict_part(base), *key = nullptr;
    Py_ssize_t position = 0;
    if (dict == nullptr || n < 0) return nullptr;
    if (PyODict_Check(base)) {
        each_ordered_key(base, [&](Py_ssize_t i, PyObject *each) {
            if (i == n) key = each;  // borrowed: the dict keeps it alive
            return i < n;
        });
        return key;
    }
    for (Py_ssize_t i = 0; i <= n; i++)
        if (!PyDict_Next(dict, &position, &key, nullptr)) return nullptr;
    return key;
}

// 1, 0, or -1 if the value is no set or the object is gone.
int in_set(PyObject *value, PyObject *object) {
    if (!PyAnySet_Check(value) || object == nullptr || object == Py_None) return -1;
    int found = PySet_Contains(value, object);
    if (found < 0) PyErr_Clear();
    return found;
}

}  // namespace

// A borrowed reference that lives as long as the run, or null if the value does not exist.
PyObject *guard_load(Run &run, const Instruction &at) {
    const View &view = run.view;
    PyObject *base = at.source < 0 ? nullptr : run.registers[at.source];
    switch (at.op) {
        case LOCAL:
            return at.number >= 0 && at.number < view.n_locals ? view.locals[at.number] : nullptr;
        case GLOBAL: return dict_find(view.globals, at.key, at.hash);
        case GLOBALS: return view.globals;
        case BUILTIN: {
            PyObject *builtins = builtins_of(view);
            return builtins != nullptr && PyDict_Check(builtins)
                       ? dict_find(builtins, at.key, at.hash)
                       : nullptr;
        }
        case CELL:
            if (view.closure == nullptr || at.number < 0 ||
                at.number >= PyTuple_GET_SIZE(view.closure))
                return nullptr;
            return PyTuple_GET_ITEM(view.closure, at.number);
        case CONST: return given(at);
        case CONTEXT: {
            if (!PyContextVar_CheckExact(at.key)) return run.keep(PyObject_CallNoArgs(at.key));
            PyObject *held = nullptr;
            (void)PyContextVar_Get(at.key, nullptr, &held);
            return run.keep(held);
        }
        case REFERENT:
            return PyWeakref_CheckRefExact(base) ? run.keep(PyObject_CallNoArgs(base)) : nullptr;
        case CONTENTS: return PyCell_Check(base) ? PyCell_GET(base) : nullptr;
        case TYPE: return (PyObject *)Py_TYPE(base);
        case ATTR: return instance_attribute(base, at.key, at.hash);
        case DICT: return run.keep(instance_dict(base));
        case CLASS_ATTR: return _PyType_Lookup(Py_TYPE(base), at.key);
        case MRO_ATTR:
            return PyType_Check(base) ? _PyType_Lookup((PyTypeObject *)base, at.key) : nullptr;
        case SLOT: return load_slot(run, base, at.key);
        case ITEM: return load_item(base, at);
        case KEY: return nth_key(base, at.number);
        case MEMBER: return load_member(run, base, at.key, at.hash);
        case GRAD: return run.keep(tensor_gradient(base));
        case ITERATED: return iterated(base, at.number);
        default: return nullptr;
    }
}

namespace {

// Whether a key is the n-th expected one.
bool is_key(PyObject *key, PyObject *expected, Py_ssize_t n) {
    PyObject *other = PyTuple_GET_ITEM(expected, n);
    return is_weak(other) ? key == referent(other) : same_constant(key, other);
}

// Compares the elements of a set in iteration order.
bool set_order_holds(PySetObject *set, PyObject *expected) {
    Py_ssize_t i = 0, n = PyTuple_GET_SIZE(expected);
    if (set->used != n) return false;
    for (Py_ssize_t at = 0; at <= set->mask; at++) {
        setentry *element = &set->table[at];
        if (element->key == nullptr || element->hash == -1) continue;
        if (i >= n || !is_key(element->key, expected, i)) return false;
        i++;
    }
    return i == n;
}

// Whether each key of a dict is among the expected ones, most often the one at the same position.
bool all_among(PyObject *dict, PyObject *expected) {
    Py_ssize_t position = 0, n = PyTuple_GET_SIZE(expected);
    PyObject *key;
    for (Py_ssize_t i = 0; PyDict_Next(dict, &position, &key, nullptr); i++) {
        bool found = false;
        for (Py_ssize_t tried = 0; tried < n && !found; tried++)
            found = is_key(key, expected, (i + tried) % n);
        if (!found) return false;
    }
    return true;
}

bool keys_hold(PyObject *value, PyObject *expected) {
    if (PyAnySet_Check(value)) return set_order_holds((PySetObject *)value, expected);
    PyObject *dict = dict_part(value), *key;
    Py_ssize_t position = 0, i = 0, n = PyTuple_GET_SIZE(expected);
    if (dict == nullptr || ((PyDictObject *)dict)->ma_used != n) return false;
    // Its iterator looks up each key, which would call methods of user-defined keys.
    if (PyODict_Check(value))
        return all_among(dict, expected) &&
               each_ordered_key(value, [&](Py_ssize_t at, PyObject *each) {
                   return at < n && is_key(each, expected, at);
               });
    while (PyDict_Next(dict, &position, &key, nullptr)) {
        if (i >= n || !is_key(key, expected, i)) return false;
        i++;
    }
    return i == n;
}

bool elements_hold(PyObject *value, const Elements &expected) {
    if (!PyAnySet_Check(value)) return false;
    auto *set = (PySetObject *)value;
    if ((size_t)set->used != expected.size()) return false;
    for (Py_ssize_t i = 0; i <= set->mask; i++) {
        setentry *element = &set->table[i];
        if (element->key == nullptr || element->hash == -1) continue;
        auto at = std::lower_bound(expected.begin(), expected.end(),
                                   std::pair{element->hash, (PyObject *)nullptr});
        bool found = false;
        for (; at != expected.end() && at->first == element->hash && !found; ++at)
            found = same_constant(element->key, at->second);
        if (!found) return false;
    }
    return true;
}

using Range = std::pair<uint64_t, uint64_t>;

// Whether objects are pairwise different and memory ranges of tensors are disjoint. Sorting makes
// this cheap for hundreds of parameters of a model.
bool all_distinct(PyObject **registers, const std::vector<int> &which) {
    std::vector<PyObject *> objects;
    std::vector<Range> ranges;
    objects.reserve(which.size());
    ranges.reserve(which.size());
    size_t n_tensors = 0, n_unknown = 0;
    for (int index : which) {
        PyObject *object = registers[index];
        objects.push_back(object);
        if (!tensor_is_tensor(object)) continue;
        Range range;
        int has_range = tensor_range(object, &range.first, &range.second);
        n_tensors++;
        n_unknown += has_range < 0;
        if (has_range > 0) ranges.push_back(range);
    }
    if (n_unknown > 0 && n_tensors > 1) return false;
    std::sort(objects.begin(), objects.end());
    if (std::adjacent_find(objects.begin(), objects.end()) != objects.end()) return false;
    std::sort(ranges.begin(), ranges.end());
    for (size_t i = 1; i < ranges.size(); i++)
        if (ranges[i].first < ranges[i - 1].second) return false;
    return true;
}

bool mro_holds(PyObject *mro, PyObject *expected) {
    Py_ssize_t n = PyTuple_Check(expected) ? PyTuple_GET_SIZE(expected) : -1;
    if (mro == nullptr || PyTuple_GET_SIZE(mro) != n) return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *other = PyTuple_GET_ITEM(expected, i);
        if (PyTuple_GET_ITEM(mro, i) != (is_weak(other) ? referent(other) : other)) return false;
    }
    return true;
}

// The dict of an object's attributes, if it has one by now.
PyObject *attributes_of(PyObject *object) {
    return inline_values(object) == nullptr ? plain_dict(object) : nullptr;
}

// Whether a dict is not the attribute dict of any of the objects, or an object's attribute dict is
// none of the dicts.
bool has_own_dict(PyObject *value, PyObject **registers, const std::vector<int> &which) {
    bool is_dict = PyDict_CheckExact(value);
    PyObject *own = is_dict ? value : attributes_of(value);
    if (own == nullptr) return true;
    for (int index : which)
        if ((is_dict ? attributes_of(registers[index]) : registers[index]) == own) return false;
    return true;
}

bool nesting_is(PyObject *expected) {
    static PyObject *asked = nullptr;  // runtime.autograd.differentiate.nested
    if (asked == nullptr) {
        Ref module(PyImport_ImportModule("graftjit.runtime.autograd.differentiate"));
        if (module) asked = PyObject_GetAttrString(module.get(), "nested");
    }
    Ref found(asked == nullptr ? nullptr : PyObject_CallNoArgs(asked));
    if (!found) PyErr_Clear();
    return found && found.get() == expected;
}

bool device_is(PyObject *expected) {
    static PyObject *asked = nullptr;  // runtime.guards.interpreter_state.current_device
    if (asked == nullptr) {
        Ref module(PyImport_ImportModule("graftjit.runtime.guards.interpreter_state"));
        if (module) asked = PyObject_GetAttrString(module.get(), "current_device");
    }
    Ref found(asked == nullptr ? nullptr : PyObject_CallNoArgs(asked));
    if (!found) PyErr_Clear();
    return found && same_constant(found.get(), expected);
}

bool token_holds(PyObject *expected) {
    if (known.abc_token == nullptr) return false;
    Ref token(PyObject_CallNoArgs(known.abc_token));
    if (!token) PyErr_Clear();
    return token && same_constant(token.get(), expected);
}

}  // namespace

bool guard_holds(Run &run, const Instruction &at) {
    PyObject *value = at.source < 0 ? nullptr : run.registers[at.source];
    switch (at.op) {
        case IS_TYPE: return (PyObject *)Py_TYPE(value) == given(at);
        case IS: return value == given(at);
        case EQUALS: return same_constant(value, at.key);
        case LEN: return builtin_length(value) == at.number;
        case KEYS: return keys_hold(value, at.key);
        case SET: return elements_hold(value, *(const Elements *)at.record);
        case ELEMENT: return in_set(value, given(at)) == 1;
        case NO_ELEMENT: return in_set(value, given(at)) == 0;
        case NO_ATTR: return instance_attribute(value, at.key, at.hash) == nullptr;
        case NO_ITEM: {
            PyObject *dict = dict_part(value), *key = given(at);
            return dict != nullptr && key != nullptr && dict_lacks_any(dict, key, at.hash);
        }
        case NO_GLOBAL: return dict_lacks(run.view.globals, at.key, at.hash);
        case NO_CLASS_ATTR: return _PyType_Lookup(Py_TYPE(value), at.key) == nullptr;
        case NO_MRO_ATTR:
            return PyType_Check(value) && _PyType_Lookup((PyTypeObject *)value, at.key) == nullptr;
        case MRO: return PyType_Check(value) && mro_holds(((PyTypeObject *)value)->tp_mro, at.key);
        case TENSOR: return tensor_record_matches((const TensorRecord *)at.record, value);
        case SAME: return value == run.registers[at.other];
        case DISTINCT: return all_distinct(run.registers, *at.registers);
        case OWN_DICT: return has_own_dict(value, run.registers, *at.registers);
        case HISTORY: return tensor_is_tensor(value) && tensor_history_is(value, at.key);
        case UNHOOKED: return tensor_is_unhooked(value);
        case STATE: return state_record_matches((const StateRecord *)at.record);
        case UNBOUND_CELL: return PyCell_Check(value) && PyCell_GET(value) == nullptr;
        case ABC: return token_holds(at.key);
        case NUMBER: return number_in_range(value, at.key);
        case RELATION:
            return relation_record_holds((const RelationRecord *)at.record, run.registers);
        case VALUE: return value_record_holds((const ValueRecord *)at.record, run);
        case UNHANDLED: return !Ref(PyErr_GetHandledException());
        case NESTED: return nesting_is(at.key);
        case DEVICE: return device_is(at.key);
        case POSITION: return iterator_position(value) == at.number;
        default: return false;
    }
}

namespace {

// Runs one operation; returns the row that fails, or -1.
int run_one(Run &run, const Instruction &at) {
    if (at.op >= IS_TYPE) return guard_holds(run, at) ? -1 : at.row;
    PyObject *value = guard_load(run, at);
    if (value == nullptr) return at.row;
    run.registers[at.into] = value;
    return -1;
}

int run_some(const GuardProgram *program, Run &run, std::span<const int> which) {
    NoCollection borrowed;
    for (int index : which)
        if (int row = run_one(run, (*program->code)[index]); row >= 0) return row;
    return -1;
}

// Whether the state may be read in Python. Then other threads and finalizers may run.
bool runs_python(const Instruction &at) {
    return at.op == STATE && !state_record_is_native((const StateRecord *)at.record);
}

// Runs operations that use no loaded values. Loaded values are kept alive where Python may run.
int run_about_the_thread(const GuardProgram *program, Run &run, std::vector<Ref> &held) {
    const std::vector<Instruction> &code = *program->code;
    std::span<const int> always = program->heap->always,
                         arguments = always.first(program->heap->n_arguments);
    for (int index : always.subspan(arguments.size())) {
        if (held.empty() && runs_python(code[index]))
            for (int load : arguments)
                if (code[load].into >= 0)
                    held.emplace_back(Py_NewRef(run.registers[code[load].into]));
        if (int row = run_one(run, code[index]); row >= 0) return row;
    }
    return -1;
}

// Runs all operations in order; returns the first row that fails. For reports and checks.
int run_all(const GuardProgram *program, Run &run) {
    std::vector<Ref> held;
    for (const Instruction &at : *program->code) {
        if (int row = run_one(run, at); row >= 0) return row;
        if (at.into >= 0) held.emplace_back(Py_NewRef(run.registers[at.into]));
    }
    return -1;
}

// `from`: remembered values, or null if this run has loaded all.
void take_inputs(const GuardProgram *program, const Run &run, const std::vector<PyObject *> *from,
                 PyObject **inputs) {
    const std::vector<int> &registers = *program->inputs;
    for (size_t i = 0; inputs != nullptr && i < registers.size(); i++) {
        PyObject *known = from == nullptr ? nullptr : (*from)[i];
        inputs[i] = Py_NewRef(known == nullptr ? run.registers[registers[i]] : known);
    }
}

// Nothing remembered has changed; runs the operations that must run at each call.
int run_loose(const GuardProgram *program, const Armed &armed, Run &run) {
    // A check may run Python code of torch and let other threads run.
    std::vector<Ref> held;
    for (int reg : armed.loose_reads) {
        run.registers[reg] = armed.registers[reg];
        held.emplace_back(Py_NewRef(armed.registers[reg]));
    }
    return run_some(program, run, armed.loose);
}

int run_remembered(const GuardProgram *program, const Armed &armed, Run &run, PyObject **inputs) {
    if (armed.loose.empty()) {
        take_inputs(program, run, &armed.inputs, inputs);
        return -1;
    }
    std::vector<PyObject *> known = armed.inputs;
    for (PyObject *one : known) Py_XINCREF(one);
    int row = run_loose(program, armed, run);
    if (row < 0) take_inputs(program, run, &known, inputs);
    for (PyObject *one : known) Py_XDECREF(one);
    return row;
}

// Runs the value programs, the most expensive checks, after all other rows hold and `inputs` is
// filled.
int run_values(const GuardProgram *program, const Armed *armed, Run &run, PyObject **inputs) {
    if (program->heap->values.empty()) return -1;
    int row = values_run(program, armed, run);
    for (size_t i = 0; row >= 0 && inputs != nullptr && i < program->inputs->size(); i++)
        Py_DECREF(inputs[i]);
    return row;
}

int run_parts(GuardProgram *program, Run &run, PyObject **inputs) {
    Heap *heap = program->heap;
    std::vector<Ref> held;
    if (int row = run_some(program, run, std::span(heap->always).first(heap->n_arguments));
        row >= 0)
        return row;
    if (int row = run_about_the_thread(program, run, held); row >= 0) return row;
    if (const Armed *armed = heap_unchanged(heap, run)) {
        int row = run_remembered(program, *armed, run, inputs);
        return row < 0 ? run_values(program, armed, run, inputs) : row;
    }
    if (int row = run_some(program, run, heap->rest); row >= 0) return row;
    take_inputs(program, run, nullptr, inputs);
    {
        NoCollection borrowed;
        heap_remember(program, run);
    }
    return run_values(program, nullptr, run, inputs);
}

// The first row that fails. If none does although one has just failed, returns n_rows, since the
// partition of the operations must be wrong.
int first_failure(GuardProgram *program, const View &view, PyObject **registers) {
    Run run{view, registers, registers + program->n_registers};
    int row = run_all(program, run);
    for (int i = 0; i < run.n_owned; i++) Py_DECREF(run.owned[i]);
    return row < 0 ? program->n_rows : row;
}

}  // namespace

int guards_check(GuardProgram *program, const View &view, PyObject **inputs, bool exact) {
    constexpr int SMALL = 4096;
    if (program->heap == nullptr) return program->n_rows;  // the program is being collected
    int need = program->n_registers + program->n_owned;
    std::vector<PyObject *> large;
    PyObject **registers;
    if (need <= SMALL) {
        registers = (PyObject **)alloca((need + 1) * sizeof(PyObject *));
    } else {
        large.resize(need);
        registers = large.data();
    }
    Run run{view, registers, registers + program->n_registers};
    program->heap->busy++;
    int verdict = run_parts(program, run, inputs);
    for (int i = 0; i < run.n_owned; i++) Py_DECREF(run.owned[i]);
    if (verdict >= 0 && exact) verdict = first_failure(program, view, registers);
    program->heap->busy--;
    return verdict;
}
