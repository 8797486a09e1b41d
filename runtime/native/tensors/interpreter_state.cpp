// Interpreter and torch state as one packed image, compared by guards of kind "state"
// (runtime/guards/interpreter_state.py).
//
// The image is read through C++ symbols of torch that `state_bind` has checked against Python's
// answers. If a mode, transform or tracer is active, or a symbol is missing, the plain-Python
// snapshot is compared instead.
#include "frame/objects.h"

#include <dlfcn.h>

#include <cstring>
#include <new>

#include "tensors/tensor.h"
#include "tensors/torch_api.h"

int torch_state_init(PyObject *module);

namespace {

constexpr int AUTOGRAD_WORDS = 5;
constexpr int FLAGS = 7;

struct StateApi {
    uint64_t *(*autograd)();  // c10::AutogradState::get_tls_state()
    // c10::get_default_dtype(): caffe2::TypeMeta is one uint16_t
    uint16_t (*default_dtype)();
    int8_t (*autocast_dtype)(int8_t);    // at::autocast::get_autocast_dtype(DeviceType)
    bool (*autocast_cache)();            // at::autocast::is_autocast_cache_enabled()
    int (*autocast_deeper)();            // at::autocast::increment_nesting(): returns the new depth
    int (*autocast_back)();              // at::autocast::decrement_nesting()
    int64_t (*function_modes)();         // at::impl::PythonTorchFunctionTLS::stack_len()
    int8_t (*function_disabled)();       // at::impl::PythonTorchFunctionTLS::get_disabled_state()
    int64_t (*dispatch_modes)();         // c10::impl::TorchDispatchModeTLS::stack_len()
    void *(*context)();                  // at::globalContext()
    bool (*flags[FLAGS])(const void *);  // bool at::Context::...() const
    // at::SavedTensorDefaultHooks::get_tls_state(): its first member is a std::deque
    const bool *anomaly;  // torch::autograd::AnomalyMode::_enabled
} api;

const char *FLAG_SYMBOLS[FLAGS] = {
    "_ZNK2at7Context23deterministicAlgorithmsEv",
    "_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv",
    "_ZNK2at7Context17userEnabledMkldnnEv",
    "_ZNK2at7Context19userEnabledFlashSDPEv",
    "_ZNK2at7Context26userEnabledMemEfficientSDPEv",
    "_ZNK2at7Context18userEnabledMathSDPEv",
    "_ZNK2at7Context19userEnabledCuDNNSDPEv",
};
const char *KEY_SET_SYMBOL = "_ZN3c104impl26raw_local_dispatch_key_setE";

uint64_t autograd_mask[AUTOGRAD_WORDS];
bool native_state = false;
PyObject *snapshot_function = nullptr;  // runtime.guards.interpreter_state.snapshot
PyObject *forward_ad = nullptr;         // torch.autograd.forward_ad's dict
PyObject *level_name = nullptr;         // "_current_level"
Py_hash_t level_hash = 0;

struct Image {
    uint64_t autograd[AUTOGRAD_WORDS];
    uint64_t include, exclude;  // as torch stores them: relative to its defaults
    int64_t function_modes, dispatch_modes, forward_level;
    uint16_t default_dtype;
    int8_t autocast_cpu, autocast_cuda, autocast_cache, autocast_nested, function_disabled;
    int8_t flags[FLAGS];
    int8_t watched;
};

// torch's thread-local data; the addresses are looked up once per thread.
struct Own {
    const uint64_t *autograd, *key_sets;
};

const Own &own() {
    static constinit thread_local Own mine = {nullptr, nullptr};
    if (mine.key_sets == nullptr)
        mine = {api.autograd(), (const uint64_t *)dlsym(torch_api.c10, KEY_SET_SYMBOL)};
    return mine;
}

int64_t forward_level() {
    PyObject *level = dict_find(forward_ad, level_name, level_hash);
    return level != nullptr && PyLong_CheckExact(level) ? PyLong_AsLong(level) : -2;
}

// Whether anomaly mode observes autograd.
bool autograd_watched() { return *api.anomaly; }

void read_image(Image *image) {
    std::memset(image, 0, sizeof *image);
    const Own &mine = own();
    for (int i = 0; i < AUTOGRAD_WORDS; i++)
        if (autograd_mask[i]) image->autograd[i] = mine.autograd[i] & autograd_mask[i];
    image->include = mine.key_sets[0];
    image->exclude = mine.key_sets[1];
    image->function_modes = api.function_modes();
    image->dispatch_modes = api.dispatch_modes();
    image->forward_level = forward_level();
    image->default_dtype = api.default_dtype();
    image->autocast_cpu = api.autocast_dtype(0);
    image->autocast_cuda = api.autocast_dtype(1);
    image->autocast_cache = api.autocast_cache();
    image->autocast_nested = api.autocast_deeper() > 1;
    api.autocast_back();
    image->function_disabled = api.function_disabled();
    const void *context = api.context();
    for (int i = 0; i < FLAGS; i++) image->flags[i] = api.flags[i](context);
    image->watched = autograd_watched();
}

bool bind_symbols() {
    auto cpu = [](const char *name) { return dlsym(torch_api.library, name); };
    auto c10 = [](const char *name) { return dlsym(torch_api.c10, name); };
    if (torch_api.library == nullptr || torch_api.c10 == nullptr) return false;
    *(void **)&api.autograd = c10("_ZN3c1013AutogradState13get_tls_stateEv");
    *(void **)&api.default_dtype = c10("_ZN3c1017get_default_dtypeEv");
    *(void **)&api.autocast_dtype = cpu("_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE");
    *(void **)&api.autocast_cache = cpu("_ZN2at8autocast25is_autocast_cache_enabledEv");
    *(void **)&api.autocast_deeper = cpu("_ZN2at8autocast17increment_nestingEv");
    *(void **)&api.autocast_back = cpu("_ZN2at8autocast17decrement_nestingEv");
    *(void **)&api.function_modes = cpu("_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
    *(void **)&api.function_disabled =
        cpu("_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv");
    *(void **)&api.dispatch_modes = c10("_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv");
    *(void **)&api.context = cpu("_ZN2at13globalContextEv");
    api.anomaly = (const bool *)cpu("_ZN5torch8autograd11AnomalyMode8_enabledE");
    bool all = api.autograd && api.default_dtype && api.autocast_dtype && api.autocast_cache &&
               api.autocast_deeper && api.autocast_back && api.function_modes &&
               api.function_disabled && api.dispatch_modes && api.context && api.anomaly;
    for (int i = 0; i < FLAGS; i++) {
        *(void **)&api.flags[i] = cpu(FLAG_SYMBOLS[i]);
        all = all && api.flags[i];
    }
    return all && own().key_sets != nullptr;
}

// The words of this thread's c10::AutogradState, or None if the symbol is missing.
PyObject *autograd_words(PyObject *, PyObject *) {
    if (torch_api.c10 == nullptr) Py_RETURN_NONE;
    auto state = (uint64_t * (*)()) dlsym(torch_api.c10, "_ZN3c1013AutogradState13get_tls_stateEv");
    if (state == nullptr) Py_RETURN_NONE;
    PyObject *words = PyTuple_New(AUTOGRAD_WORDS);
    for (int i = 0; words != nullptr && i < AUTOGRAD_WORDS; i++)
        PyTuple_SET_ITEM(words, i, PyLong_FromUnsignedLongLong(state()[i]));
    return words;
}

// Whether autograd is observed on this thread, or None if symbols are missing.
PyObject *watched(PyObject *, PyObject *) {
    if (!bind_symbols()) Py_RETURN_NONE;
    return PyBool_FromLong(autograd_watched());
}

// Whether the symbols agree with Python (runtime.guards.tensor_access._context_facts). 1, 0, or -1
// with an error set.
int agrees(PyObject *facts) {
    unsigned long long include, exclude;
    PyObject *dtype, *cpu, *cuda, *flags;
    int cache, nested;
    long long function_modes, dispatch_modes;
    if (!PyArg_ParseTuple(facts, "KKOOOppLLO!", &include, &exclude, &dtype, &cpu, &cuda, &cache,
                          &nested, &function_modes, &dispatch_modes, &PyTuple_Type, &flags))
        return -1;
    if (PyTuple_GET_SIZE(flags) != FLAGS) return 0;
    Image now;
    read_image(&now);
    bool same = now.default_dtype == dtype_code(dtype) && now.autocast_cpu == dtype_code(cpu) &&
                now.autocast_cuda == dtype_code(cuda) && now.autocast_cache == cache &&
                now.autocast_nested == nested && now.function_modes == function_modes &&
                now.dispatch_modes == dispatch_modes;
    for (int i = 0; i < FLAGS; i++)
        same = same && now.flags[i] == PyObject_IsTrue(PyTuple_GET_ITEM(flags, i));
    // An unknown dtype code means that tensors cannot be read: no comparison, no route.
    PyErr_Clear();
    return same;
}

int load_python_part() {
    if (snapshot_function != nullptr) return 0;
    PyObject *state = PyImport_ImportModule("graftjit.runtime.guards.interpreter_state");
    PyObject *module =
        state == nullptr ? nullptr : PyImport_ImportModule("torch.autograd.forward_ad");
    if (module != nullptr) {
        forward_ad = Py_NewRef(PyModule_GetDict(module));
        level_name = PyUnicode_InternFromString("_current_level");
        level_hash = PyObject_Hash(level_name);
        snapshot_function = PyObject_GetAttrString(state, "snapshot");
    }
    Py_XDECREF(module);
    Py_XDECREF(state);
    return snapshot_function == nullptr ? -1 : 0;
}

// state_bind(mask or None, facts): sets the mask of the relevant bits of AutogradState.
PyObject *state_bind(PyObject *, PyObject *args) {
    PyObject *mask, *facts;
    if (!PyArg_ParseTuple(args, "OO", &mask, &facts) || load_python_part() < 0) return nullptr;
    native_state = false;
    if (PyTuple_Check(mask) && PyTuple_GET_SIZE(mask) == AUTOGRAD_WORDS && bind_symbols()) {
        for (int i = 0; i < AUTOGRAD_WORDS; i++)
            autograd_mask[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(mask, i));
        int same = PyErr_Occurred() ? -1 : agrees(facts);
        if (same < 0) return nullptr;
        native_state = same;
    }
    torch_route("interpreter state", native_state ? "packed image" : "runtime.state.snapshot");
    Py_RETURN_NONE;
}

// Attribute `plain` of a State: whether no mode, transform or tracer is active that the image could
// not distinguish.
bool is_plain(PyObject *snapshot) {
    PyObject *plain = PyObject_GetAttrString(snapshot, "plain");
    bool yes = plain == Py_True;
    Py_XDECREF(plain);
    PyErr_Clear();
    return yes;
}

bool python_says_equal(PyObject *expected) {
    PyObject *now = PyObject_CallNoArgs(snapshot_function);
    int same = now == nullptr ? 0 : PyObject_RichCompareBool(now, expected, Py_EQ);
    Py_XDECREF(now);
    PyErr_Clear();
    return same == 1;
}

PyObject *state_matches(PyObject *, PyObject *snapshot) {
    StateRecord *record = state_record_new(snapshot);
    if (record == nullptr) return nullptr;
    bool same = state_record_matches(record);
    state_record_free(record);
    return PyBool_FromLong(same);
}

PyMethodDef methods[] = {
    {"autograd_words", autograd_words, METH_NOARGS,
     "Words of c10::AutogradState, for finding its bits."},
    {"autograd_watched", watched, METH_NOARGS,
     "Whether anomaly mode is in force."},
    {"state_bind", state_bind, METH_VARARGS,
     "Bind the packed reading; called by runtime.tensors.bind."},
    {"state_matches", state_matches, METH_O, "Whether a State is in force on this thread."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

// A std::deque of libstdc++ begins with its map, the map's size, and iterators to the first and past
// the last element, of four words each; it is empty if these are equal.
const void *saving_hooks() {
    using Saving = void *const *(*)();
    if (torch_api.library == nullptr) return nullptr;
    static const auto state = (Saving)dlsym(
        torch_api.library, "_ZN2at23SavedTensorDefaultHooks13get_tls_stateEv");
    if (state == nullptr) return nullptr;
    void *const *hooks = state();
    return hooks[2] == hooks[6] ? nullptr : hooks[6];
}

struct StateRecord {
    PyObject *snapshot;
    bool plain;  // can be compared by image
    // The image was read while Python said that the state was the expected one.
    mutable bool known;
    mutable Image image;
};

StateRecord *state_record_new(PyObject *snapshot) {
    if (load_python_part() < 0 || torch_api_ready() < 0) return nullptr;
    auto *record = new (std::nothrow) StateRecord();
    if (record == nullptr) return (StateRecord *)PyErr_NoMemory();
    record->snapshot = Py_NewRef(snapshot);
    record->plain = is_plain(snapshot);
    state_record_matches(record);
    return record;
}

void state_record_free(StateRecord *record) {
    if (record == nullptr) return;
    Py_XDECREF(record->snapshot);
    delete record;
}

bool state_record_matches(const StateRecord *record) {
    if (!native_state || !record->plain) return python_says_equal(record->snapshot);
    Image now;
    read_image(&now);
    if (record->known) return std::memcmp(&now, &record->image, sizeof now) == 0;
    if (!python_says_equal(record->snapshot)) return false;
    record->image = now;
    record->known = true;
    return true;
}

bool state_record_is_native(const StateRecord *record) {
    return native_state && record->plain && record->known;
}

int torch_state_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
