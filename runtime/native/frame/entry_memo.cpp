#include "frame/entry_memo.h"

#include "frame/objects.h"
#include "tensors/tensor.h"
#include "tensors/tensor_trace.h"

#include <algorithm>

namespace {

constexpr int DEPTH = 2;
constexpr Py_ssize_t MOST = 16;  // elements per container

uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 32);
}

uint64_t of_tensor(uint64_t hash, PyObject *tensor) {
    if (tensor_places.sizes < 0) return hash;
    auto *impl = (const char *)impl_of(handle_of(tensor));
    auto *sizes = (const uint64_t *)(impl + tensor_places.sizes);
    hash = mix(hash, *(const uint64_t *)(impl + torch_api.keys_offset));
    hash = mix(hash, *(const uint64_t *)(impl + tensor_places.kind));
    hash = mix(hash, sizes[0]);
    for (uint64_t i = 1; sizes[0] <= 5 && i <= sizes[0]; i++)
        hash = mix(mix(hash, sizes[i]), sizes[i + 5]);
    return hash;
}

uint64_t of_value(uint64_t hash, PyObject *value, int depth);

uint64_t of_container(uint64_t hash, PyObject *value, int depth) {
    Py_ssize_t n = builtin_length(value);
    hash = mix(hash, (uint64_t)n);
    if (depth == DEPTH) return hash;
    if (PyDict_CheckExact(value)) {
        PyObject *key, *item;
        Py_ssize_t position = 0;
        for (Py_ssize_t i = 0; i < MOST && PyDict_Next(value, &position, &key, &item); i++)
            hash = of_value(of_value(hash, key, depth + 1), item, depth + 1);
        return hash;
    }
    PyObject **items = PySequence_Fast_ITEMS(value);
    for (Py_ssize_t i = 0; i < std::min(n, MOST); i++) hash = of_value(hash, items[i], depth + 1);
    return hash;
}

uint64_t of_value(uint64_t hash, PyObject *value, int depth) {
    if (value == nullptr) return mix(hash, 1);
    hash = mix(hash, (uint64_t)Py_TYPE(value));
    if (tensor_is_plain(value)) return of_tensor(hash, value);
    if (PyTuple_CheckExact(value) || PyList_CheckExact(value) || PyDict_CheckExact(value))
        return of_container(hash, value, depth);
    if (hashes_safely(value)) return mix(hash, (uint64_t)PyObject_Hash(value));
    return mix(hash, (uint64_t)value);
}

}  // namespace

uint64_t EntryMemo::key_of(const View &view) {
    uint64_t hash = 0;
    for (Py_ssize_t i = 0; i < std::min(view.n_locals, MOST); i++)
        hash = of_value(hash, view.locals[i], 0);
    return hash;
}
