#include "guards/heap_recorder.h"

#include "guards/guard_instructions.h"
#include "tensors/tensor.h"

#include <unordered_map>
#include <unordered_set>

namespace {

class Recorder {
  public:
    Recorder(const GuardProgram *program, const Run &run, Armed *armed)
        : program(program),
          run(run),
          armed(*armed),
          steady(program->n_registers),
          loose(program->n_registers) {}

    bool record();

  private:
    // Record an operation by signs. If that is impossible (false), the operation runs at each call.
    bool note_load(const Instruction &at, PyObject *base);
    bool note_check(const Instruction &at, PyObject *base);
    bool again(const Instruction &at);
    bool is_loose(const Instruction &at) const;
    void keep_loose(int index, const Instruction &at);
    void keep_values();

    // Signs of a change. Each returns false if there is no such sign.
    bool word(const void *at);
    bool reassigned(int reg, bool counted, const void *at);
    bool place_of_attributes(int reg, PyObject *object);
    bool is_dict_told(PyTypeObject *type);
    bool kind_of(int reg, PyObject *object);
    bool class_at(PyTypeObject *type);
    bool class_facts(PyTypeObject *type);
    bool contents(PyObject *dict, PyObject *key = nullptr);
    bool one_key(const Instruction &at, PyObject *dict, bool *sure);
    bool value_of(PyDictKeysObject *keys, PyDictValues *values, const Instruction &at);
    bool attribute(const Instruction &at, PyObject *object, bool *sure);
    bool item(const Instruction &at, PyObject *base, bool *sure);
    bool member(const Instruction &at, PyObject *base, bool *sure);
    bool slot(const Instruction &at, PyObject *base);
    bool length(const Instruction &at, PyObject *value);
    void pin(PyObject *object);

    bool is_steady(const Instruction &at) const { return at.source < 0 || steady[at.source]; }
    bool from_call(int reg) const { return reg >= 0 && program->heap->each_call[reg]; }
    // the class is the root
    bool by_class(const Instruction &at) const { return from_call(at.source); }

    const GuardProgram *program;
    const Run &run;
    Armed &armed;
    // By register: it is certainly the same object while the signs hold. If not, only its address
    // is the same, and another object may have got it; then everything that rows read of it needs
    // its own sign.
    std::vector<char> steady;
    std::vector<char> loose;
    std::unordered_set<const void *> seen, polled;
    // By class: whether assignments of `__dict__` are counted.
    std::unordered_map<PyTypeObject *, bool> dict_told;
};

// --- signs ---------------------------------------------------------------------------------------

bool Recorder::word(const void *at) {
    if (!polled.insert(at).second) return true;
    armed.words.push_back({(const uintptr_t *)at, *(const uintptr_t *)at});
    armed.all.push_back(armed.words.back());
#if !PY312
    armed.versions.push_back(armed.words.back());
#endif
    return true;
}

// A word of an object that only a setter writes, whose calls may be counted.
bool Recorder::reassigned(int reg, bool counted, const void *at) {
    if (!counted || reg < 0 || !steady[reg]) return word(at);
    if (seen.insert(at).second)
        armed.all.push_back({(const uintptr_t *)at, *(const uintptr_t *)at});
    return true;
}

void Recorder::pin(PyObject *object) {
    if (seen.insert((char *)object + 1).second) armed.pins.push_back(Py_NewRef(object));
}

// Makes sure that the class is not another one at the same address.
bool Recorder::class_at(PyTypeObject *type) {
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || !seen.insert((char *)type + 2).second)
        return true;
    PyObject *weak = PyWeakref_NewRef((PyObject *)type, nullptr);
    if (weak == nullptr) {
        PyErr_Clear();
        return false;
    }
    armed.pins.push_back(weak);
    return word(&((PyWeakReference *)weak)->wr_object);
}

// The class of an object. Classes of instances of builtin types cannot be assigned, except those of
// modules.
bool Recorder::kind_of(int reg, PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    bool fixed =
        (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) && !PyType_IsSubtype(type, &PyModule_Type);
    if (fixed && reg >= 0 && steady[reg]) return true;
    return reassigned(reg, counted_setters.classes, &object->ob_type) && class_at(type);
}

// The results of look-ups along a class's bases.
bool Recorder::class_facts(PyTypeObject *type) {
    return class_version(type) != 0 && word(&type->tp_version_tag);
}

bool Recorder::contents(PyObject *dict, PyObject *key) {
#if PY312
    return watch_dict(dict, &armed.flag, key);
#else
    (void)key;  // a version is of the whole dict
    if (seen.insert((char *)dict + 3).second) {
        const uint64_t *version = dict_version(dict);
        armed.versions.push_back({(const uintptr_t *)version, (uintptr_t)*version});
        armed.all.push_back(armed.versions.back());
    }
    return true;
#endif
}

// One attribute among values whose keys are shared with other objects.
bool Recorder::value_of(PyDictKeysObject *keys, PyDictValues *values, const Instruction &at) {
    Py_ssize_t place = name_in_keys(keys, at.key, at.hash);
    return place >= 0 ? word(&values_array(values)[place]) : word(&keys->dk_nentries);
}

// The value of one key of a dict, or its absence. `sure`: the object itself is certainly the same.
bool Recorder::one_key(const Instruction &at, PyObject *dict, bool *sure) {
    auto *table = (PyDictObject *)dict;
    if (table->ma_values == nullptr || split_dicts_are_watched)
        return *sure = contents(dict, at.key);
    *sure = false;
    return PyUnicode_CheckExact(at.key) && word(&table->ma_values) && word(&table->ma_keys) &&
           value_of(table->ma_keys, table->ma_values, at);
}

// The location of an object's attributes: in the object, or in a dict.
bool Recorder::place_of_attributes(int reg, PyObject *object) {
    const void *words[2];
    int n = attribute_words(object, words);
    if (n < 0) return false;
    bool in_dict = n == 1 && inline_values(object) == nullptr && plain_dict(object) != nullptr;
    if (in_dict) return reassigned(reg, is_dict_told(Py_TYPE(object)), words[0]);
    for (int i = 0; i < n; i++) word(words[i]);
    return true;
}

bool Recorder::is_dict_told(PyTypeObject *type) {
    auto [known, is_new] = dict_told.try_emplace(type, false);
    if (is_new) known->second = dict_setter_is_counted(type);
    return known->second;
}

bool Recorder::attribute(const Instruction &at, PyObject *object, bool *sure) {
    if (PyType_Check(object)) {
        if (!is_steady(at) && !kind_of(at.source, object)) return false;
        return *sure = class_facts((PyTypeObject *)object);
    }
    if (!kind_of(at.source, object)) return false;
    if (!place_of_attributes(at.source, object)) return false;
    if (PyDictValues *values = inline_values(object))
        return value_of(((PyHeapTypeObject *)Py_TYPE(object))->ht_cached_keys, values, at);
    PyObject *own = plain_dict(object);
    return own == nullptr || (PyDict_Check(own) && one_key(at, own, sure));
}

bool Recorder::item(const Instruction &at, PyObject *base, bool *sure) {
    if (!is_steady(at) && !kind_of(at.source, base)) return false;
    if (PyDict_Check(base)) return one_key(at, base, sure);
    if (PyTuple_Check(base) && is_steady(at)) return *sure = true;
    if (at.number < 0 || !(PyTuple_Check(base) || PyList_Check(base))) return false;
    word(&((PyVarObject *)base)->ob_size);
    if (PyTuple_Check(base)) return word(&((PyTupleObject *)base)->ob_item[at.number]);
    return word(&((PyListObject *)base)->ob_item) &&
           word(&((PyListObject *)base)->ob_item[at.number]);
}

bool Recorder::member(const Instruction &at, PyObject *base, bool *sure) {
    if (PyMethod_Check(base) && is_steady(at)) return *sure = true;
    if (!PyFunction_Check(base)) return false;
    auto *function = (PyFunctionObject *)base;
    const struct {
        const char *name;
        PyObject **field;
    } fields[] = {{"__code__", &function->func_code},
                  {"__globals__", &function->func_globals},
                  {"__defaults__", &function->func_defaults},
                  {"__kwdefaults__", &function->func_kwdefaults},
                  {"__closure__", &function->func_closure}};
    for (const auto &one : fields)
        if (PyUnicode_CompareWithASCIIString(at.key, one.name) == 0)
            return kind_of(at.source, base) && word(one.field);
    return PyUnicode_CompareWithASCIIString(at.key, "__wrapped__") == 0 &&
           attribute(at, base, sure);
}

bool Recorder::slot(const Instruction &at, PyObject *base) {
    PyTypeObject *type = Py_TYPE(base);
    PyObject *descriptor = _PyType_Lookup(type, at.key);
    if (descriptor == nullptr || Py_TYPE(descriptor) != &PyMemberDescr_Type) return false;
    PyMemberDef *law = ((PyMemberDescrObject *)descriptor)->d_member;
    return law->type == T_OBJECT_EX && kind_of(at.source, base) && class_facts(type) &&
           word((char *)base + law->offset);
}

bool Recorder::length(const Instruction &at, PyObject *value) {
    bool fixed = PyTuple_Check(value) || PyUnicode_Check(value) || PyBytes_Check(value) ||
                 PyRange_Check(value);
    if (fixed && is_steady(at)) return true;
    if (!is_steady(at) && !kind_of(at.source, value)) return false;
    if (PyDict_Check(value)) return contents(value);
    if (PyAnySet_Check(value)) return word(&((PySetObject *)value)->used);
    if (PyUnicode_Check(value) || PyRange_Check(value)) return false;
    bool sized = PyList_Check(value) || PyTuple_Check(value) || PyBytes_Check(value) ||
                 PyByteArray_Check(value) ||
                 (known.deque != nullptr && PyObject_TypeCheck(value, known.deque));
    return sized && word(&((PyVarObject *)value)->ob_size);
}

// --- operations ----------------------------------------------------------------------------------

// Whether an operation still has the same outcome.
bool Recorder::again(const Instruction &at) {
    PyObject *kept = nullptr;
    Run mine{run.view, run.registers, &kept};
    bool same =
        at.op < IS_TYPE ? guard_load(mine, at) == run.registers[at.into] : guard_holds(mine, at);
    Py_XDECREF(kept);
    return same;
}

bool Recorder::note_load(const Instruction &at, PyObject *base) {
    bool sure = false, noted = false;
    switch (at.op) {
        case GLOBAL: noted = one_key(at, run.view.globals, &sure); break;
        case GLOBALS:
        case CELL: noted = true; break;
        case BUILTIN: noted = one_key(at, builtins_of(run.view), &sure); break;
        case CONST: noted = sure = !at.weak || word(&((PyWeakReference *)at.key)->wr_object); break;
        case CONTENTS:
            noted = kind_of(at.source, base) && word(&((PyCellObject *)base)->ob_ref);
            break;
        case TYPE: noted = sure = kind_of(at.source, base) && class_at(Py_TYPE(base)); break;
        case ATTR: noted = attribute(at, base, &sure); break;
        case DICT:
            noted = !PyType_Check(base) && kind_of(at.source, base) &&
                    plain_dict(base) == run.registers[at.into] &&
                    place_of_attributes(at.source, base);
            break;
        case CLASS_ATTR:
            noted = sure = (by_class(at) || kind_of(at.source, base)) && class_facts(Py_TYPE(base));
            break;
        case MRO_ATTR:
            noted = sure =
                (is_steady(at) || kind_of(at.source, base)) && class_facts((PyTypeObject *)base);
            break;
        case SLOT: noted = slot(at, base); break;
        case ITEM: noted = item(at, base, &sure); break;
        case KEY:
            noted = sure =
                PyDict_Check(base) && !PyODict_Check(base) && kind_of(at.source, base) &&
                (((PyDictObject *)base)->ma_values == nullptr || split_dicts_are_watched) &&
                contents(base);
            break;
        case MEMBER: noted = member(at, base, &sure); break;
        default: break;
    }
    steady[at.into] = noted && sure;
    return noted;
}

bool Recorder::note_check(const Instruction &at, PyObject *base) {
    bool noted = false, sure = false;
    switch (at.op) {
        case IS_TYPE: noted = kind_of(at.source, base); break;
        case IS: noted = !at.weak || word(&((PyWeakReference *)at.key)->wr_object); break;
        case EQUALS:
        case NUMBER:
            if (!is_steady(at)) pin(base);  // a constant that equals the expected one
            if (at.source >= 0) steady[at.source] = 1;
            noted = true;
            break;
        case LEN: noted = length(at, base); break;
        case KEYS:
            noted = PyDict_Check(base) && !PyODict_Check(base) && kind_of(at.source, base) &&
                    (((PyDictObject *)base)->ma_values == nullptr || split_dicts_are_watched) &&
                    contents(base);
            break;
        case NO_ATTR: noted = attribute(at, base, &sure); break;
        case NO_ITEM:
            noted = PyDict_Check(base) && kind_of(at.source, base) && one_key(at, base, &sure);
            break;
        case NO_GLOBAL: noted = one_key(at, run.view.globals, &sure); break;
        case NO_CLASS_ATTR:
            noted = (by_class(at) || kind_of(at.source, base)) && class_facts(Py_TYPE(base));
            break;
        case MRO:
        case NO_MRO_ATTR:
            noted =
                (is_steady(at) || kind_of(at.source, base)) && class_facts((PyTypeObject *)base);
            break;
        case TENSOR:
            noted = tensor_record_is_native((const TensorRecord *)at.record) &&
                    class_at(Py_TYPE(base)) && armed.tensors.add(base, steady[at.source]);
            break;
        case SAME: noted = !from_call(at.source) && !from_call(at.other); break;
        case UNBOUND_CELL:
            noted = kind_of(at.source, base) && word(&((PyCellObject *)base)->ob_ref);
            break;
        default: break;
    }
    return noted;
}

template <class Visit> void each_register(const Instruction &at, Visit visit) {
    if (at.source >= 0) visit(at.source);
    if (at.other >= 0) visit(at.other);
    if (at.registers != nullptr)
        for (int reg : *at.registers) visit(reg);
}

// Whether an operation reads something that is loaded at each call.
bool Recorder::is_loose(const Instruction &at) const {
    bool any = false;
    each_register(at, [&](int reg) { any = any || loose[reg]; });
    return any;
}

void Recorder::keep_loose(int index, const Instruction &at) {
    armed.loose.push_back(index);
    if (at.into >= 0) loose[at.into] = 1;
    each_register(at, [&](int reg) {
        if (!loose[reg] && !from_call(reg)) armed.loose_reads.push_back(reg);
    });
}

void Recorder::keep_values() {
    armed.registers.assign(program->n_registers, nullptr);
    for (int index : program->heap->rest) {
        const Instruction &at = (*program->code)[index];
        if (at.into >= 0 && !loose[at.into]) armed.registers[at.into] = run.registers[at.into];
    }
    for (int reg : *program->inputs) armed.inputs.push_back(armed.registers[reg]);
}

// No Python code runs here, and every value is loaded again, so that everything recorded belongs to
// one moment.
bool Recorder::record() {
    for (int index : program->heap->rest) {
        const Instruction &at = (*program->code)[index];
        PyObject *base = at.source < 0 ? nullptr : run.registers[at.source];
        bool noted = !is_loose(at) && (at.into >= 0 ? note_load(at, base) : note_check(at, base));
        if (!noted)
            keep_loose(index, at);
        else if (!again(at))
            return false;
    }
    keep_values();
    armed.reassigned = reassigned_so_far();
#if !PY312
    armed.clock = dict_clock == nullptr ? 0 : *dict_clock - own_dicts;
#endif
    return true;
}

}  // namespace

bool record(const GuardProgram *program, const Run &run, Armed *armed) {
    return Recorder(program, run, armed).record();
}
