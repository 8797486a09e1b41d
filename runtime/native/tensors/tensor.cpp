#include "tensors/tensor.h"

#include <dlfcn.h>

#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "executor/thread_limit.h"
#include "tensors/native_hooks.h"
#include "tensors/torch_api.h"

TorchApi torch_api = {.handle_offset = -1, .keys_offset = -1};

namespace {

PyObject *tensor_type = nullptr;     // torch.Tensor
PyObject *parameter_type = nullptr;  // torch.nn.Parameter
PyObject *dispatch_keys = nullptr;   // torch._C._dispatch_keys
PyObject *dtype_codes = nullptr;     // torch.dtype -> the shim's number
// Key sets of dense strided CPU tensors, whose memory may be read.
std::vector<uint64_t> plain_keys;
PyObject *route_names = nullptr;  // the result of `tensor_routes`
bool bound = false;

// The value of an attribute chain from a module, as a new reference; null with a Python error set.
PyObject *dotted(const char *module, std::initializer_list<const char *> names) {
    PyObject *value = PyImport_ImportModule(module);
    for (const char *name : names) {
        if (value == nullptr) return nullptr;
        PyObject *next = PyObject_GetAttrString(value, name);
        Py_DECREF(value);
        value = next;
    }
    return value;
}

// --- binding -------------------------------------------------------------------------------------

struct Symbol {
    void **place;
    const char *name;
};

const Symbol CPU_SYMBOLS[] = {
    {(void **)&torch_api.get_dtype, "aoti_torch_get_dtype"},
    {(void **)&torch_api.get_dim, "aoti_torch_get_dim"},
    {(void **)&torch_api.get_numel, "aoti_torch_get_numel"},
    {(void **)&torch_api.get_sizes, "aoti_torch_get_sizes"},
    {(void **)&torch_api.get_strides, "aoti_torch_get_strides"},
    {(void **)&torch_api.get_storage_offset, "aoti_torch_get_storage_offset"},
    {(void **)&torch_api.get_data_ptr, "aoti_torch_get_data_ptr"},
    {(void **)&torch_api.get_device_type, "aoti_torch_get_device_type"},
    {(void **)&torch_api.get_device_index, "aoti_torch_get_device_index"},
    {(void **)&torch_api.empty_strided, "aoti_torch_empty_strided"},
    {(void **)&torch_api.reinterpret, "aoti_torch__reinterpret_tensor"},
    {(void **)&torch_api.new_handle, "aoti_torch_new_tensor_handle"},
    {(void **)&torch_api.delete_tensor, "aoti_torch_delete_tensor_object"},
    {(void **)&torch_api.element_size, "aoti_torch_dtype_element_size"},
    {(void **)&torch_api.get_num_threads, "_ZN2at15get_num_threadsEv"},
};

// One sample of `runtime.guards.tensor_access.samples()`: Python's view of a tensor.
struct Sample {
    PyObject *tensor;
    uint64_t cdata, keys;
    std::vector<int64_t> sizes, strides;
    int64_t offset;
    uint64_t data;
    int requires_grad, strided;
};

bool read_ints(PyObject *sequence, std::vector<int64_t> &out) {
    PyObject *fast = PySequence_Fast(sequence, "a sequence of integers is wanted");
    if (fast == nullptr) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) {
        long long value = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast, i));
        if (value == -1 && PyErr_Occurred()) break;
        out.push_back(value);
    }
    Py_DECREF(fast);
    return !PyErr_Occurred();
}

bool read_samples(PyObject *list, std::vector<Sample> &out) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        Sample sample;
        PyObject *sizes, *strides;
        unsigned long long cdata, keys, data;
        long long offset;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "OKKOOLKpp", &sample.tensor, &cdata, &keys,
                              &sizes, &strides, &offset, &data, &sample.requires_grad,
                              &sample.strided))
            return false;
        if (!read_ints(sizes, sample.sizes) || !read_ints(strides, sample.strides)) return false;
        sample.cdata = cdata, sample.keys = keys, sample.offset = offset, sample.data = data;
        out.push_back(std::move(sample));
    }
    return true;
}

// The offset of the first word in `span` bytes of each sample's object that holds the sample's
// expected value; -1 if there is none.
template <typename Base, typename Expected>
Py_ssize_t find_word(const std::vector<Sample> &samples, Py_ssize_t from, Py_ssize_t span,
                     Base base, Expected expected) {
    for (Py_ssize_t offset = from; offset < span; offset += 8) {
        bool all = true;
        for (const Sample &sample : samples)
            if (*(uint64_t *)(base(sample) + offset) != expected(sample)) {
                all = false;
                break;
            }
        if (all) return offset;
    }
    return -1;
}

bool getters_agree(const Sample &sample) {
    Handle handle = handle_of(sample.tensor);
    int64_t dim, offset, *sizes, *strides;
    void *data;
    if (torch_api.get_dim(handle, &dim) || torch_api.get_sizes(handle, &sizes) ||
        torch_api.get_strides(handle, &strides) || torch_api.get_storage_offset(handle, &offset) ||
        torch_api.get_data_ptr(handle, &data))
        return false;
    return dim == (int64_t)sample.sizes.size() && offset == sample.offset &&
           (uint64_t)data == sample.data && std::memcmp(sizes, sample.sizes.data(), dim * 8) == 0 &&
           std::memcmp(strides, sample.strides.data(), dim * 8) == 0;
}

void note(const char *route, const char *value) {
    PyObject *text = PyUnicode_FromString(value);
    if (text == nullptr || PyDict_SetItemString(route_names, route, text) < 0) PyErr_Clear();
    Py_XDECREF(text);
}

bool allowed(PyObject *forced, const char *route) {
    PyObject *name = PyUnicode_FromString(route);
    int found = name == nullptr ? 1 : PySequence_Contains(forced, name);
    Py_XDECREF(name);
    if (found < 0) PyErr_Clear();
    return found == 0;
}

bool wrap_agrees(const std::vector<Sample> &samples) {
    for (const Sample &sample : samples) {
        PyObject *again = torch_api.wrap(handle_of(sample.tensor));
        bool same = again == sample.tensor;
        Py_XDECREF(again);
        if (!same) return false;
    }
    int64_t size[2] = {2, 3}, stride[2] = {3, 1};
    int64_t *sizes;
    Handle handle;
    if (torch_api.empty_strided(2, size, stride, (int32_t)6, 0, 0, &handle)) return false;
    PyObject *wrapped = torch_api.wrap(handle);
    bool good = wrapped != nullptr && (PyObject *)Py_TYPE(wrapped) == tensor_type &&
                impl_of(handle_of(wrapped)) == impl_of(handle) &&
                torch_api.get_sizes(handle, &sizes) == 0 && sizes[0] == 2 && sizes[1] == 3;
    torch_api.delete_tensor(handle);
    // Since torch 2.13 the C++ side holds a reference while it has a handle.
    good = good && Py_REFCNT(wrapped) == 1;
    Py_XDECREF(wrapped);
    return good;
}

void bind_guard_routes(const std::vector<Sample> &samples, void *c10, PyObject *forced) {
    torch_api.handle_offset = -1;
    torch_api.keys_offset = -1;
    if (allowed(forced, "handle"))
        torch_api.handle_offset = find_word(
            samples, sizeof(PyObject), sizeof(PyObject) + 64,
            [](const Sample &s) { return (char *)s.tensor; },
            [](const Sample &s) { return s.cdata; });
    bool handles = torch_api.handle_offset >= 0;
    for (const Symbol &symbol : CPU_SYMBOLS) handles = handles && *symbol.place != nullptr;
    for (const Sample &sample : samples)
        handles = handles && (!sample.strided || getters_agree(sample));
    if (handles && allowed(forced, "keys"))
        torch_api.keys_offset = find_word(
            samples, 0, 192, [](const Sample &s) { return (char *)s.cdata; },
            [](const Sample &s) { return s.keys; });
    torch_api.requires_grad = c10 == nullptr ? nullptr
                                             : (bool (*)(const void *))dlsym(
                                                   c10, "_ZNK3c1010TensorImpl13requires_gradEv");
    if (!handles || !allowed(forced, "requires_grad")) torch_api.requires_grad = nullptr;
    if (torch_api.requires_grad != nullptr)
        for (const Sample &sample : samples)
            if (torch_api.requires_grad((void *)sample.cdata) != (bool)sample.requires_grad) {
                torch_api.requires_grad = nullptr;
                break;
            }
    torch_api.native_guard = handles && torch_api.keys_offset >= 0;
    note("handle", handles ? "object field found by _cdata" : "python attributes");
    note("metadata", handles ? "torch C shim" : "python attributes");
    note("dispatch keys",
         torch_api.keys_offset >= 0 ? "TensorImpl word" : "torch._C._dispatch_keys");
    note("requires_grad",
         torch_api.requires_grad ? "c10::TensorImpl::requires_grad" : "python attribute");
    if (!handles) torch_api.handle_offset = -1;
}

void bind_program_routes(const std::vector<Sample> &samples, void *python, PyObject *forced) {
    torch_api.wrap = nullptr;
    if (python != nullptr && torch_api.handle_offset >= 0 && allowed(forced, "wrap")) {
        torch_api.wrap =
            (PyObject * (*)(const void *)) dlsym(python, "_Z16THPVariable_WrapRKN2at10TensorBaseE");
        if (torch_api.wrap != nullptr && !wrap_agrees(samples)) torch_api.wrap = nullptr;
    }
    torch_api.translate_exception = nullptr;
    if (python != nullptr && allowed(forced, "errors"))
        torch_api.translate_exception = (void (*)(const std::exception_ptr &))dlsym(
            python,
            "_ZN5torch29translate_exception_to_pythonERKNSt15__exception_ptr13exception_ptrE");
    torch_api.native_program =
        torch_api.handle_offset >= 0 && torch_api.wrap != nullptr && allowed(forced, "program");
    note("wrap", torch_api.wrap ? "THPVariable_Wrap" : "missing");
    note("allocate",
         torch_api.handle_offset >= 0 ? "aoti_torch_empty_strided" : "torch.empty_strided");
    note("errors",
         torch_api.translate_exception ? "torch's own translation" : "repeated in Python");
    note("executor", torch_api.native_program ? "native" : "python");
    note("threads", thread_limit_bind(allowed(forced, "threads"))
                        ? "fewer while other processes take the cores"
                        : "torch's number");
}

bool read_dtypes(PyObject *samples) {
    PyDict_Clear(dtype_codes);
    if (torch_api.handle_offset < 0) return true;
    PyObject *dtype, *sample;
    Py_ssize_t at = 0;
    while (PyDict_Next(samples, &at, &dtype, &sample)) {
        int32_t code;
        if (torch_api.get_dtype(handle_of(sample), &code) != 0) continue;
        PyObject *number = PyLong_FromLong(code);
        int failed = number == nullptr ? -1 : PyDict_SetItem(dtype_codes, dtype, number);
        Py_XDECREF(number);
        if (failed) return false;
    }
    return true;
}

// tensor_bind(libtorch_cpu, libc10, libtorch_python, samples, dtype samples, without): paths or "",
// and the routes to disable.
PyObject *tensor_bind(PyObject *, PyObject *args) {
    const char *cpu, *c10, *python;
    PyObject *list, *dtypes, *forced;
    if (!PyArg_ParseTuple(args, "sssO!O!O", &cpu, &c10, &python, &PyList_Type, &list, &PyDict_Type,
                          &dtypes, &forced))
        return nullptr;
    std::vector<Sample> samples;
    if (!read_samples(list, samples)) return nullptr;
    auto open = [](const char *path) {
        return *path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
    };
    torch_api.library = open(cpu);
    for (const Symbol &symbol : CPU_SYMBOLS)
        *symbol.place =
            torch_api.library == nullptr ? nullptr : dlsym(torch_api.library, symbol.name);
    bound = true;
    PyDict_Clear(route_names);
    torch_api.c10 = open(c10);
    bind_guard_routes(samples, torch_api.c10, forced);
    if (!read_dtypes(dtypes)) return nullptr;
    *(void **)&torch_api.bump_version =
        torch_api.library == nullptr
            ? nullptr
            : dlsym(torch_api.library, "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE");
    plain_keys.clear();
    for (const Sample &sample : samples)
        if (sample.strided) plain_keys.push_back(sample.keys);
    torch_api.python = open(python);
    bind_program_routes(samples, torch_api.python, forced);
    if (PyErr_Occurred()) return nullptr;
    return PyDict_Copy(route_names);
}

// tensor_routes(): the routes in use, by task.
PyObject *tensor_routes(PyObject *, PyObject *) {
    if (torch_api_ready() < 0) return nullptr;
    return PyDict_Copy(route_names);
}

// --- reading -------------------------------------------------------------------------------------

bool attr_is(PyObject *value, const char *name, PyObject *expected) {
    PyObject *got = PyObject_GetAttrString(value, name);
    int same = got == nullptr ? 0 : PyObject_RichCompareBool(got, expected, Py_EQ);
    Py_XDECREF(got);
    PyErr_Clear();
    return same == 1;
}

bool call_is(PyObject *value, const char *method, PyObject *expected) {
    PyObject *got = PyObject_CallMethod(value, method, nullptr);
    int same = got == nullptr ? 0 : PyObject_RichCompareBool(got, expected, Py_EQ);
    Py_XDECREF(got);
    PyErr_Clear();
    return same == 1;
}

bool keys_are(PyObject *value, uint64_t expected) {
    PyObject *set = PyObject_CallOneArg(dispatch_keys, value);
    PyObject *raw = set == nullptr ? nullptr : PyObject_CallMethod(set, "raw_repr", nullptr);
    uint64_t got = raw == nullptr ? 0 : PyLong_AsUnsignedLongLong(raw);
    Py_XDECREF(set);
    Py_XDECREF(raw);
    bool same = !PyErr_Occurred() && got == expected;
    PyErr_Clear();
    return same;
}

}  // namespace

int torch_api_ready() {
    if (bound) return 0;
    PyObject *done = dotted("graftjit.runtime.guards.tensor_access", {"bind"});
    PyObject *result = done == nullptr ? nullptr : PyObject_CallNoArgs(done);
    Py_XDECREF(done);
    Py_XDECREF(result);
    return result == nullptr ? -1 : 0;
}

int32_t dtype_code(PyObject *dtype) {
    PyObject *code = PyDict_GetItemWithError(dtype_codes, dtype);
    if (code != nullptr) return (int32_t)PyLong_AsLong(code);
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_RuntimeError, "torch's C shim does not know the dtype %R", dtype);
    return -1;
}

int device_code(PyObject *device, int32_t *type, int32_t *index) {
    PyObject *name = PyObject_GetAttrString(device, "type");
    PyObject *number = PyObject_GetAttrString(device, "index");
    int result = -1;
    if (name != nullptr && number != nullptr && PyUnicode_Check(name)) {
        std::string symbol = std::string("aoti_torch_device_type_") + PyUnicode_AsUTF8(name);
        auto code = (int32_t(*)())dlsym(torch_api.library, symbol.c_str());
        if (code == nullptr) {
            PyErr_Format(PyExc_RuntimeError, "torch's C shim does not know the device %R", device);
        } else {
            *type = code();
            *index = number == Py_None ? 0 : (int32_t)PyLong_AsLong(number);
            result = PyErr_Occurred() ? -1 : 0;
        }
    }
    Py_XDECREF(name);
    Py_XDECREF(number);
    return result;
}

// --- tensor records ------------------------------------------------------------------------------

// In expected sizes: any size from 2 on. In expected strides: checked by "relation" rows.
constexpr int64_t OPEN = INT64_MIN;

struct TensorRecord {
    PyObject *spec;
    PyTypeObject *type;
    PyObject *dtype, *device, *shape, *stride, *requires_grad;  // borrowed from spec
    uint64_t keys;
    int32_t dtype_code, device_type, device_index;
    bool wants_grad, native, open = false;
    int64_t dim;
    std::vector<int64_t> sizes, strides;
};

// Like read_ints, with OPEN for None.
static bool read_extents(PyObject *tuple, std::vector<int64_t> &out, bool &open) {
    if (!PyTuple_Check(tuple)) return read_ints(tuple, out);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        open = open || item == Py_None;
        out.push_back(item == Py_None ? OPEN : PyLong_AsLongLong(item));
    }
    return !PyErr_Occurred();
}

static PyObject *spec_attr(PyObject *spec, const char *name) {
    PyObject *value = PyObject_GetAttrString(spec, name);
    Py_XDECREF(value);  // the frozen spec keeps it
    return value;
}

TensorRecord *tensor_record_new(PyObject *spec) {
    if (torch_api_ready() < 0) return nullptr;
    auto *record = new (std::nothrow) TensorRecord();
    if (record == nullptr) return (TensorRecord *)PyErr_NoMemory();
    record->spec = Py_NewRef(spec);
    PyObject *type = spec_attr(spec, "type"), *keys = spec_attr(spec, "keys");
    record->dtype = spec_attr(spec, "dtype");
    record->device = spec_attr(spec, "device");
    record->shape = spec_attr(spec, "shape");
    record->stride = spec_attr(spec, "stride");
    record->requires_grad = spec_attr(spec, "requires_grad");
    bool good = type && keys && record->dtype && record->device && record->shape &&
                record->stride && record->requires_grad;
    if (good) {
        record->type = (PyTypeObject *)type;
        record->keys = PyLong_AsUnsignedLongLong(keys);
        record->wants_grad = PyObject_IsTrue(record->requires_grad) == 1;
        good = !PyErr_Occurred() && read_extents(record->shape, record->sizes, record->open) &&
               read_extents(record->stride, record->strides, record->open);
        record->dim = (int64_t)record->sizes.size();
    }
    if (good && torch_api.native_guard) {
        record->dtype_code = dtype_code(record->dtype);
        record->native = !PyErr_Occurred() && device_code(record->device, &record->device_type,
                                                          &record->device_index) == 0;
        if (attr_is(record->device, "index", Py_None)) record->device_index = -1;
        PyErr_Clear();  // dtype or device without a number in the shim: compared by attributes
        // A layout without strides (its spec has none) is compared by its keys.
        record->native = record->native && record->strides.size() == record->sizes.size();
    }
    if (!good) {
        tensor_record_free(record);
        return nullptr;
    }
    return record;
}

void tensor_record_free(TensorRecord *record) {
    if (record == nullptr) return;
    Py_XDECREF(record->spec);
    delete record;
}

// Compares a tuple of sizes or strides by attribute, where some may be OPEN.
static bool extents_are(PyObject *value, bool size, const std::vector<int64_t> &expected) {
    PyObject *got = size ? PyObject_GetAttrString(value, "shape")
                         : PyObject_CallMethod(value, "stride", nullptr);
    std::vector<int64_t> found;
    bool same = got != nullptr && read_ints(got, found) && found.size() == expected.size();
    Py_XDECREF(got);
    PyErr_Clear();
    for (size_t i = 0; same && i < found.size(); i++)
        same = expected[i] == OPEN ? !size || found[i] >= 2 : found[i] == expected[i];
    return same;
}

bool tensor_extent(PyObject *tensor, bool size, int64_t dim, int64_t *found) {
    if (!tensor_is_tensor(tensor) || torch_api_ready() < 0) return PyErr_Clear(), false;
    int64_t rank, *extents;
    if (torch_api.native_guard) {
        Handle handle = handle_of(tensor);
        if (torch_api.get_dim(handle, &rank) || dim >= rank) return false;
        if (size ? torch_api.get_sizes(handle, &extents) : torch_api.get_strides(handle, &extents))
            return false;
        *found = extents[dim];
        return true;
    }
    PyObject *got = size ? PyObject_GetAttrString(tensor, "shape")
                         : PyObject_CallMethod(tensor, "stride", nullptr);
    std::vector<int64_t> all;
    bool good = got != nullptr && read_ints(got, all) && dim < (int64_t)all.size();
    Py_XDECREF(got);
    PyErr_Clear();
    if (good) *found = all[dim];
    return good;
}

static bool matches_by_attributes(const TensorRecord *record, PyObject *value) {
    // The layout first, since a layout without strides raises if asked for them.
    return keys_are(value, record->keys) && attr_is(value, "dtype", record->dtype) &&
           attr_is(value, "device", record->device) &&
           attr_is(value, "requires_grad", record->requires_grad) &&
           (record->open ? extents_are(value, true, record->sizes) &&
                               extents_are(value, false, record->strides)
                         : attr_is(value, "shape", record->shape) &&
                               (record->strides.size() != record->sizes.size() ||
                                call_is(value, "stride", record->stride)));
}

bool tensor_record_matches(const TensorRecord *record, PyObject *value) {
    if (Py_TYPE(value) != record->type) return false;
    if (!record->native || !torch_api.native_guard) return matches_by_attributes(record, value);
    Handle handle = handle_of(value);
    void *impl = impl_of(handle);
    if (*(uint64_t *)((char *)impl + torch_api.keys_offset) != record->keys) return false;
    int32_t dtype, device;
    int64_t dim, *sizes, *strides;
    if (torch_api.get_dtype(handle, &dtype) || dtype != record->dtype_code) return false;
    if (torch_api.get_dim(handle, &dim) || dim != record->dim) return false;
    if (torch_api.get_sizes(handle, &sizes) || torch_api.get_strides(handle, &strides))
        return false;
    for (int64_t i = 0; i < dim; i++) {
        if (sizes[i] != record->sizes[i] && (record->sizes[i] != OPEN || sizes[i] < 2))
            return false;
        if (strides[i] != record->strides[i] && record->strides[i] != OPEN) return false;
    }
    if (torch_api.get_device_type(handle, &device) || device != record->device_type) return false;
    if (device != 0 &&
        (torch_api.get_device_index(handle, &device) || device != record->device_index))
        return false;
    if (torch_api.requires_grad == nullptr)
        return attr_is(value, "requires_grad", record->requires_grad);
    return torch_api.requires_grad(impl) == record->wants_grad;
}

bool tensor_record_is_native(const TensorRecord *record) {
    return record->native && torch_api.native_guard;
}

// --- kinds and overlap ---------------------------------------------------------------------------

bool tensor_is_plain(PyObject *value) {
    auto *type = (PyObject *)Py_TYPE(value);
    return type == tensor_type || type == parameter_type;
}

bool tensor_is_tensor(PyObject *value) {
    if (tensor_is_plain(value)) return true;
    return tensor_type != nullptr && PyType_IsSubtype(Py_TYPE(value), (PyTypeObject *)tensor_type);
}

// A field of a plain tensor, read through the C code of its class.
static PyObject *tensor_field(PyObject *tensor, const char *text, PyObject **name) {
    if (!tensor_is_plain(tensor)) return nullptr;
    if (*name == nullptr) *name = PyUnicode_InternFromString(text);
    PyObject *found = *name == nullptr ? nullptr : PyObject_GenericGetAttr(tensor, *name);
    if (found == nullptr) PyErr_Clear();
    return found;
}

PyObject *tensor_gradient(PyObject *tensor) {
    static PyObject *name = nullptr;
    return tensor_field(tensor, "grad", &name);
}

// Whether autograd leaves the dtype of a leaf's gradient as it is: it casts to `grad_dtype`.
static bool gradient_is_not_cast(PyObject *tensor) {
    static PyObject *names[2] = {};
    PyObject *wanted = tensor_field(tensor, "grad_dtype", &names[0]);
    if (wanted == nullptr) return true;  // not a leaf, or a version of torch without it
    PyObject *own = tensor_field(tensor, "dtype", &names[1]);
    bool same = wanted == own;
    Py_DECREF(wanted);
    Py_XDECREF(own);
    return same;
}

bool tensor_is_unhooked(PyObject *tensor) {
    if (is_hooked_natively(tensor) || !gradient_is_not_cast(tensor)) return false;
    static PyObject *names[2] = {};
    const char *texts[] = {"_backward_hooks", "_post_accumulate_grad_hooks"};
    for (int i = 0; i < 2; i++) {
        PyObject *found = tensor_field(tensor, texts[i], &names[i]);
        bool none = found == Py_None ||
                    (found != nullptr && PyDict_Check(found) && PyDict_GET_SIZE(found) == 0);
        Py_XDECREF(found);
        if (!none) return false;
    }
    return true;
}

// The bytes [begin, end) that a strided tensor spans. Returns 1; 0 if it has none; -1 if unknown.
static int byte_range(PyObject *tensor, uint64_t *begin, uint64_t *end) {
    PyObject *both = dotted("graftjit.runtime.guards.tensor_access", {"byte_range"});
    PyObject *range = both == nullptr ? nullptr : PyObject_CallOneArg(both, tensor);
    int result = -1;
    if (range != nullptr && PyTuple_Check(range) && PyTuple_GET_SIZE(range) == 2) {
        *begin = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(range, 0));
        *end = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(range, 1));
        result = PyErr_Occurred() ? -1 : *end > *begin;
    }
    Py_XDECREF(both);
    Py_XDECREF(range);
    PyErr_Clear();
    return result;
}

// Whether a tensor is dense, strided and on the CPU according to its key set.
static bool has_plain_keys(PyObject *tensor) {
    if (!torch_api.native_guard) return false;
    uint64_t keys = *(uint64_t *)((char *)impl_of(handle_of(tensor)) + torch_api.keys_offset);
    for (uint64_t known : plain_keys)
        if (known == keys) return true;
    return false;
}

// The same through the shim.
static bool fast_range(PyObject *tensor, uint64_t *begin, uint64_t *end) {
    if (!has_plain_keys(tensor)) return false;
    Handle handle = handle_of(tensor);
    int64_t dim, *sizes, *strides;
    int32_t dtype;
    void *data;
    if (torch_api.get_dim(handle, &dim) || torch_api.get_sizes(handle, &sizes) ||
        torch_api.get_strides(handle, &strides) || torch_api.get_dtype(handle, &dtype) ||
        torch_api.get_data_ptr(handle, &data))
        return false;
    uint64_t span = 0;
    bool empty = false;
    for (int64_t i = 0; i < dim; i++) {
        empty = empty || sizes[i] == 0;
        span += (uint64_t)((sizes[i] - 1) * strides[i]);
    }
    *begin = (uint64_t)data;
    *end = empty ? *begin : *begin + (span + 1) * torch_api.element_size(dtype);
    return true;
}

int tensor_range(PyObject *tensor, uint64_t *begin, uint64_t *end) {
    if (fast_range(tensor, begin, end)) return *begin < *end;
    return byte_range(tensor, begin, end);
}

bool tensor_overlap(PyObject *first, PyObject *second) {
    if (!tensor_is_tensor(first) || !tensor_is_tensor(second)) return false;
    uint64_t a, b, c, d;
    if (int known = tensor_range(first, &a, &b); known <= 0) return known < 0;
    if (int known = tensor_range(second, &c, &d); known <= 0) return known < 0;
    return a < b && c < d && a < d && c < b;
}

// --- the module's part ---------------------------------------------------------------------------

static PyObject *tensor_matches(PyObject *, PyObject *args) {
    PyObject *spec, *value;
    if (!PyArg_ParseTuple(args, "OO", &spec, &value)) return nullptr;
    TensorRecord *record = tensor_record_new(spec);
    if (record == nullptr) return nullptr;
    bool same = tensor_record_matches(record, value);
    tensor_record_free(record);
    return PyBool_FromLong(same);
}

static PyObject *tensors_overlap(PyObject *, PyObject *args) {
    PyObject *first, *second;
    if (!PyArg_ParseTuple(args, "OO", &first, &second)) return nullptr;
    if (torch_api_ready() < 0) return nullptr;
    return PyBool_FromLong(tensor_overlap(first, second));
}

// all_plain(values): each is None or a plain tensor that is dense, strided and on the CPU.
static PyObject *all_plain(PyObject *, PyObject *values) {
    if (!PyTuple_Check(values)) Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); i++) {
        PyObject *one = PyTuple_GET_ITEM(values, i);
        if (one != Py_None && !(tensor_is_plain(one) && has_plain_keys(one))) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

static PyObject *dtype_number(PyObject *, PyObject *dtype) {
    if (torch_api_ready() < 0) return nullptr;
    int32_t code = dtype_code(dtype);
    return PyErr_Occurred() ? nullptr : PyLong_FromLong(code);
}

static PyObject *has_symbol(PyObject *, PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    if (text == nullptr || torch_api_ready() < 0) return nullptr;
    return PyBool_FromLong(torch_api.library != nullptr &&
                           dlsym(torch_api.library, text) != nullptr);
}

static PyMethodDef tensor_methods[] = {
    {"dtype_code", dtype_number, METH_O, "The C shim's number for a dtype."},
    {"has_symbol", has_symbol, METH_O, "Whether libtorch_cpu has a symbol of this (mangled) name."},
    {"tensor_bind", tensor_bind, METH_VARARGS,
     "Bind the routes to tensors; called by runtime.tensors.bind."},
    {"tensor_routes", tensor_routes, METH_NOARGS, "Which route is in use for what."},
    {"tensor_matches", tensor_matches, METH_VARARGS, "Whether a TensorSpec holds for a value."},
    {"all_plain", all_plain, METH_O, "Whether each is None or a dense, strided tensor on the CPU."},
    {"tensors_overlap", tensors_overlap, METH_VARARGS, "Whether two tensors may share memory."},
    {nullptr, nullptr, 0, nullptr},
};

int torch_state_init(PyObject *module);

int tensor_init(PyObject *module) {
    tensor_type = dotted("torch", {"Tensor"});
    parameter_type = dotted("torch", {"nn", "Parameter"});
    dispatch_keys = dotted("torch", {"_C", "_dispatch_keys"});
    route_names = PyDict_New();
    dtype_codes = PyDict_New();
    if (!tensor_type || !parameter_type || !dispatch_keys || !route_names || !dtype_codes)
        return -1;
    if (PyModule_AddFunctions(module, tensor_methods) < 0) return -1;
    return torch_state_init(module);
}

void torch_route(const char *task, const char *route) { note(task, route); }
