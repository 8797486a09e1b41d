#include "frame/class_watch.h"

#include "frame/objects.h"

CountedSetters counted_setters;
uint64_t setters_run = 0;
int setters_running = 0;
struct _gc_runtime_state *collector = nullptr;

namespace {

setter set_class_before = nullptr, set_dict_before = nullptr;
PyCFunction swap_before = nullptr;

// One running setter. It is counted at its end, since it may run Python code before and after it
// writes the word.
class Counted {
  public:
    Counted() { setters_running++; }
    Counted(const Counted &) = delete;
    ~Counted() {
        setters_running--;
        setters_run++;
    }
};

int set_class(PyObject *self, PyObject *value, void *closure) {
    Counted counted;
    return set_class_before(self, value, closure);
}

int set_dict(PyObject *self, PyObject *value, void *closure) {
    Counted counted;
    return set_dict_before(self, value, closure);
}

PyObject *swap(PyObject *self, PyObject *arguments) {
    Counted counted;
    return swap_before(self, arguments);
}

// The entry of a class's own getter and setter of this name, or null.
PyGetSetDef *own_getset(PyTypeObject *type, const char *name) {
    Ref own(class_dict(type)), key(PyUnicode_InternFromString(name));
    PyObject *found =
        own && key ? dict_find(own.get(), key.get(), PyObject_Hash(key.get())) : nullptr;
    return found != nullptr && Py_TYPE(found) == &PyGetSetDescr_Type
               ? ((PyGetSetDescrObject *)found)->d_getset
               : nullptr;
}

// Replaces a setter by a counting function, which from then on all classes that share the entry
// call.
bool count_setter(PyTypeObject *type, const char *name, setter ours, setter &before) {
    PyGetSetDef *entry = own_getset(type, name);
    if (entry == nullptr || entry->set == nullptr) return false;
    if (entry->set == ours) return true;
    if (before != nullptr && entry->set != before) return false;
    before = entry->set;
    entry->set = ours;
    return true;
}

// `class Probe: pass`, or with these slots.
Ref make_class(PyObject *slots) {
    Ref attributes(PyDict_New());
    if (!attributes ||
        (slots != nullptr && PyDict_SetItemString(attributes.get(), "__slots__", slots) < 0))
        return Ref();
    return Ref(PyObject_CallFunction((PyObject *)&PyType_Type, "s()O", "Probe", attributes.get()));
}

// Whether setting this attribute of an instance of the class increments the counter.
bool is_counted(PyObject *cls, const char *name, PyObject *value) {
    Ref probe(PyObject_CallNoArgs(cls));
    uint64_t before = setters_run;
    return probe && PyObject_SetAttrString(probe.get(), name, value) == 0 &&
           setters_run == before + 1;
}

// The setter of `__dict__` is in one of two tables of the interpreter: for classes with and without
// weak references.
bool count_setters() {
    Ref names(Py_BuildValue("(s)", "__dict__"));
    Ref full(make_class(nullptr)), other(make_class(nullptr)), only(make_class(names.get())),
        value(PyDict_New());
    if (!names || !full || !other || !only || !value) return false;
    auto type = [](const Ref &ref) { return (PyTypeObject *)ref.get(); };
    counted_setters.classes =
        count_setter(&PyBaseObject_Type, "__class__", set_class, set_class_before) &&
        is_counted(full.get(), "__class__", other.get());
    bool both = count_setter(type(full), "__dict__", set_dict, set_dict_before) &&
                count_setter(type(only), "__dict__", set_dict, set_dict_before);
    counted_setters.dicts = both && is_counted(full.get(), "__dict__", value.get()) &&
                            is_counted(only.get(), "__dict__", value.get());
    return true;
}

// Whether the collector's statistics are where this interpreter version has them: collecting
// garbage must change them.
bool collections_are_counted() {
    Ref knot(PyList_New(0)), gc(PyImport_ImportModule("gc"));
    if (!knot || !gc || PyList_Append(knot.get(), knot.get()) < 0) return false;
    knot = Ref();
    uint64_t before = reassigned_so_far().collected;
    Ref done(PyObject_CallMethod(gc.get(), "collect", "i", 0));
    return done && reassigned_so_far().collected > before && collector->collecting == 0;
}

bool has_dict(PyTypeObject *type) {
    return type != nullptr &&
           (type->tp_dictoffset != 0 || (type->tp_flags & Py_TPFLAGS_MANAGED_DICT));
}

bool owns(PyTypeObject *type, const char *name) {
    Ref own(class_dict(type)), key(PyUnicode_InternFromString(name));
    return own && key && !dict_lacks(own.get(), key.get(), PyObject_Hash(key.get()));
}

PyObject *count_swaps(PyObject *, PyObject *function) {
    PyMethodDef *law =
        PyCFunction_Check(function) ? ((PyCFunctionObject *)function)->m_ml : nullptr;
    if (law == nullptr || law->ml_flags != METH_VARARGS) Py_RETURN_FALSE;
    if (law->ml_meth != swap) {
        if (swap_before != nullptr && law->ml_meth != swap_before) Py_RETURN_FALSE;
        swap_before = law->ml_meth;
        law->ml_meth = swap;
    }
    // Either both the class and the body of a tensor are counted, or neither.
    counted_setters.tensors = counted_setters.classes;
    return PyBool_FromLong(counted_setters.tensors);
}

PyObject *what_is_counted(PyObject *, PyObject *) {
    return Py_BuildValue("{s:i,s:i,s:i}", "classes", counted_setters.classes, "dicts",
                         counted_setters.dicts, "tensors", counted_setters.tensors);
}

PyMethodDef methods[] = {
    {"count_swaps", count_swaps, METH_O,
     "count_swaps(torch._C._swap_tensor_impl) -> whether tensors' bodies need no look while it has not run"},
    {"counted_setters", what_is_counted, METH_NOARGS,
     "counted_setters() -> which setters are counted"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool dict_setter_is_counted(PyTypeObject *type) {
    if (!counted_setters.dicts || type->tp_mro == nullptr) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); i++) {
        auto *base = (PyTypeObject *)PyTuple_GET_ITEM(type->tp_mro, i);
        PyGetSetDef *entry = own_getset(base, "__dict__");
        bool counted = entry != nullptr && entry->set == set_dict;
        bool adds_dict = has_dict(base) && !has_dict(base->tp_base);
        if (!counted && (adds_dict || owns(base, "__dict__"))) return false;
    }
    return true;
}

int reassigned_init(PyObject *module) {
    collector = &PyInterpreterState_Get()->gc;
    if (collections_are_counted() && !count_setters()) counted_setters = {};
    PyErr_Clear();
    return PyModule_AddFunctions(module, methods);
}
