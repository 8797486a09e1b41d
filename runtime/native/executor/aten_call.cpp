#include "executor/aten_call.h"

#include <dlfcn.h>

#include <cstring>
#include <new>

namespace {

constexpr int MAX_LISTS = 2, MAX_LIST = 512, MAX_STACK = 24, MAX_RESULTS = 8, MAX_PATCHED = 1024;

using W = uint64_t;
using D = double;
using Function = W (*)(W, W, W, W, W, W, D, D, D, D, D, D, D, D);
using FunctionOnStack = W (*)(W, W, W, W, W, W, D, D, D, D, D, D, D, D, W, W, W, W, W, W, W, W, W,
                              W, W, W, W, W, W, W, W, W, W, W, W, W, W, W);

bool read_words(PyObject *list, std::vector<OperatorWord> &out) {
    if (!PyTuple_Check(list)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(list); i++) {
        int kind;
        long long value;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(list, i), "iL", &kind, &value)) return false;
        out.push_back({(Word)kind, value});
    }
    return true;
}

bool read_slots(PyObject *list, std::vector<int32_t> &out) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(list); i++)
        out.push_back((int32_t)PyLong_AsLong(PyTuple_GET_ITEM(list, i)));
    return !PyErr_Occurred() && out.size() <= MAX_LIST;
}

// The memory that words point to during one call. Tensors in it are borrowed and never destroyed.
struct Temporaries {
    struct OptionalTensor {
        void *impl;
        bool engaged;
    } optionals[8];
    // c10::IListRef<at::Tensor>: an ArrayRef, then the tag (0: unboxed)
    struct ListRef {
        void **data;
        uint64_t size;
        uint32_t tag;
    } refs[MAX_LISTS];
    char copies[8][16];
    void **lists[MAX_LISTS];
    const char *bytes;
    const int64_t *numbers;
    int n_optionals = 0, n_copies = 0;
};

W word(const Operator &op, const OperatorWord &from, const Handle *handles, Temporaries &all) {
    const char *bytes = all.bytes;
    switch (from.kind) {
        case Word::constant: return (W)from.value;
        case Word::handle: return (W)handles[from.value];
        case Word::blob: return (W)(bytes + from.value);
        case Word::copied: {
            char *copy = all.copies[all.n_copies++];
            std::memcpy(copy, bytes + from.value, 16);
            return (W)copy;
        }
        case Word::optional_tensor: {
            auto &optional = all.optionals[all.n_optionals++];
            optional.impl = impl_of(handles[from.value]);
            optional.engaged = true;
            return (W)&optional;
        }
        case Word::list_data: return (W)all.lists[from.value];
        case Word::list_struct: {
            auto &ref = all.refs[from.value];
            ref = {all.lists[from.value], op.lists[from.value].size(), 0};
            return (W)&ref;
        }
        case Word::number: return (W)all.numbers[from.value];
    }
    return 0;
}

}  // namespace

// Reads pairs of a place and a register.
static bool read_pairs(PyObject *pairs, size_t width, size_t limit,
                       std::vector<std::pair<int32_t, int32_t>> &out) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); i++) {
        int place, source;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, i), "ii", &place, &source)) return false;
        if (place < 0 || source < 0 || place + width > limit) return false;
        out.emplace_back(place, source);
    }
    return true;
}

bool operator_read(PyObject *plan, Operator &out) {
    const char *symbol;
    PyObject *registers, *stack, *doubles, *bytes, *lists, *patches, *reals;
    int returns;
    if (!PyArg_ParseTuple(plan, "sO!O!O!SO!iiO!O!", &symbol, &PyTuple_Type, &registers,
                          &PyTuple_Type, &stack, &PyTuple_Type, &doubles, &bytes, &PyTuple_Type,
                          &lists, &returns, &out.n_results, &PyTuple_Type, &patches, &PyTuple_Type,
                          &reals))
        return false;
    out.function = dlsym(torch_api.library, symbol);
    out.returns = (Returns)returns;
    bool good = out.function != nullptr && read_words(registers, out.registers) &&
                read_words(stack, out.stack);
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(doubles); i++)
        out.doubles.push_back(PyFloat_AsDouble(PyTuple_GET_ITEM(doubles, i)));
    // The bytes are aligned to 16, as blocks of the allocator are.
    if (good)
        out.bytes.assign(PyBytes_AS_STRING(bytes),
                         PyBytes_AS_STRING(bytes) + PyBytes_GET_SIZE(bytes));
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(lists); i++) {
        out.lists.emplace_back();
        good = read_slots(PyTuple_GET_ITEM(lists, i), out.lists.back());
    }
    good = good && read_pairs(patches, 8, out.bytes.size(), out.patches) &&
           read_pairs(reals, 1, out.doubles.size(), out.real_registers);
    good = good && out.registers.size() <= 6 && out.stack.size() <= MAX_STACK &&
           out.doubles.size() <= 8 && out.lists.size() <= MAX_LISTS &&
           (out.patches.empty() || out.bytes.size() <= MAX_PATCHED) && out.n_results <= MAX_RESULTS;
    if (!good && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "no such operator entry point, or too many arguments: %s",
                     symbol);
    return good && !PyErr_Occurred();
}

bool operator_numbers_fit(const Operator &op, size_t n_registers) {
    bool good = true;
    for (auto [place, source] : op.patches) good = good && (size_t)source < n_registers;
    for (auto [place, source] : op.real_registers) good = good && (size_t)source < n_registers;
    for (auto *words : {&op.registers, &op.stack})
        for (const OperatorWord &one : *words)
            if (one.kind == Word::number)
                good = good && one.value >= 0 && (size_t)one.value < n_registers;
    if (!good)
        PyErr_SetString(PyExc_ValueError,
                        "graftjit: an operator names a number that the program lacks");
    return good;
}

void operator_call(const Operator &op, const Handle *handles, const int64_t *numbers,
                   Handle *results) {
    Temporaries all;
    alignas(16) char patched[MAX_PATCHED];
    all.bytes = op.bytes.data();
    all.numbers = numbers;
    if (!op.patches.empty()) {
        std::memcpy(patched, op.bytes.data(), op.bytes.size());
        for (auto [place, source] : op.patches) std::memcpy(patched + place, &numbers[source], 8);
        all.bytes = patched;
    }
    void *items[MAX_LISTS][MAX_LIST];
    for (size_t list = 0; list < op.lists.size(); list++) {
        for (size_t i = 0; i < op.lists[list].size(); i++)
            items[list][i] = impl_of(handles[op.lists[list][i]]);
        all.lists[list] = items[list];
    }
    void *returned[MAX_RESULTS];
    W r[6] = {}, s[MAX_STACK] = {};
    D d[8] = {};
    size_t n = 0;
    if (op.returns == Returns::values) r[n++] = (W)returned;
    for (const OperatorWord &from : op.registers) r[n++] = word(op, from, handles, all);
    n = 0;
    for (const OperatorWord &from : op.stack) s[n++] = word(op, from, handles, all);
    for (size_t i = 0; i < op.doubles.size(); i++) d[i] = op.doubles[i];
    for (auto [place, source] : op.real_registers) std::memcpy(&d[place], &numbers[source], 8);
    W got;
    if (n == 0)
        got = ((Function)op.function)(r[0], r[1], r[2], r[3], r[4], r[5], d[0], d[1], d[2], d[3],
                                      d[4], d[5], d[6], d[7]);
    else
        got = ((FunctionOnStack)op.function)(
            r[0], r[1], r[2], r[3], r[4], r[5], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7],
            s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10], s[11], s[12], s[13],
            s[14], s[15], s[16], s[17], s[18], s[19], s[20], s[21], s[22], s[23]);
    if (op.returns == Returns::reference) {
        torch_api.new_handle((Handle)got, &results[0]);
    } else if (op.returns == Returns::values) {
        // A single tensor is its pointer. libstdc++ stores the elements of a tuple in reverse
        // order.
        for (int i = 0; i < op.n_results; i++)
            results[i] = new_cell(returned[op.n_results - 1 - i]);
    }
}
