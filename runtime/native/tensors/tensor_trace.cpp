#include "tensors/tensor_trace.h"

#include <algorithm>
#include <cstring>

TensorPlaces tensor_places;

namespace {

constexpr Py_ssize_t IMPL_SPAN = 192, AUTOGRAD_SPAN = 192;
// Number of dimensions that c10::impl::SizesAndStrides stores in the TensorImpl itself.
constexpr uint64_t INLINE = 5;

const char *impl_at(PyObject *tensor) { return (const char *)impl_of(handle_of(tensor)); }

// The offset of the number of dimensions, which sizes follow, and strides five words after sizes;
// -1 if the samples disagree.
Py_ssize_t find_sizes(PyObject *samples) {
    Py_ssize_t place = -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(samples); i++) {
        PyObject *tensor = PyTuple_GET_ITEM(samples, i);
        Handle handle = handle_of(tensor);
        const char *impl = impl_at(tensor);
        int64_t dim, *sizes, *strides;
        if (torch_api.get_dim(handle, &dim) || torch_api.get_sizes(handle, &sizes) ||
            torch_api.get_strides(handle, &strides))
            return -1;
        Py_ssize_t at = (const char *)sizes - impl - 8;
        if (i == 0) place = at;
        if (at != place || at < 0 || at > IMPL_SPAN || at % 8 ||
            *(const int64_t *)(impl + at) != dim || strides != sizes + INLINE)
            return -1;
    }
    return place;
}

// The offset of the word with the dtype's number (16 bits), the device's type and index, and the
// flag that there is a device.
Py_ssize_t find_kind(PyObject *samples) {
    for (Py_ssize_t at = 0; at < IMPL_SPAN; at += 2) {
        bool all = at % 8 <= 2;
        for (Py_ssize_t i = 0; all && i < PyTuple_GET_SIZE(samples); i++) {
            PyObject *tensor = PyTuple_GET_ITEM(samples, i);
            const char *impl = impl_at(tensor);
            int32_t dtype, type, index;
            uint16_t here;
            std::memcpy(&here, impl + at, 2);
            all = torch_api.get_dtype(handle_of(tensor), &dtype) == 0 && here == dtype &&
                  torch_api.get_device_type(handle_of(tensor), &type) == 0 &&
                  impl[at + 2] == (char)type &&
                  torch_api.get_device_index(handle_of(tensor), &index) == 0 &&
                  impl[at + 3] == (char)index && impl[at + 4] == 1;
        }
        if (all) return at - at % 8;
    }
    return -1;
}

// Groups: plain tensors (without autograd data), leaves with requires_grad, leaves where it was
// switched off, results, detached results.
enum Group { PLAIN, LEAF, SWITCHED_OFF, RESULT, DETACHED };

// The offsets that may be a field: one agrees with the samples in every state. Between two states
// Python changes the field in the same objects, so bytes that nobody writes (padding, unused parts
// of a string's buffer), which may agree with one state by chance, are left out.
class Candidates {
  public:
    Candidates(Py_ssize_t span, Py_ssize_t step) {
        for (Py_ssize_t at = 0; at < span; at += step) places.push_back(at);
    }

    // Keeps the offsets for which `right(object + offset, group)` holds.
    template <class Right> void keep(const char *object, int group, Right right) {
        auto wrong = [&](Py_ssize_t at) { return !right(object + at, group); };
        places.erase(std::remove_if(places.begin(), places.end(), wrong), places.end());
    }

    Py_ssize_t first() const { return places.empty() ? -1 : places[0]; }

  private:
    std::vector<Py_ssize_t> places;
};

struct AutogradPlaces {
    Candidates data{IMPL_SPAN, 8}, wants_grad{AUTOGRAD_SPAN, 1}, made_by{AUTOGRAD_SPAN, 8};
};

uint64_t word_at(const char *base, Py_ssize_t place) { return *(const uint64_t *)(base + place); }

template <class Visit> void each_sample(PyObject *groups, Visit visit) {
    for (Py_ssize_t group = 0; group < PyTuple_GET_SIZE(groups); group++) {
        PyObject *samples = PyTuple_GET_ITEM(groups, group);
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(samples); i++)
            visit(impl_at(PySequence_Fast_GET_ITEM(samples, i)), (int)group);
    }
}

void keep_agreeing(PyObject *groups, AutogradPlaces &places) {
    each_sample(groups, [&](const char *impl, int group) {
        places.data.keep(impl, group, [](const char *at, int of) {
            return (word_at(at, 0) != 0) == (of != PLAIN);
        });
    });
    Py_ssize_t place = places.data.first();
    if (place < 0) return;
    each_sample(groups, [&](const char *impl, int group) {
        auto *data = (const char *)word_at(impl, place);
        if (data == nullptr) return;
        places.wants_grad.keep(data, group,
                               [](const char *at, int of) { return *at == (of == LEAF); });
        places.made_by.keep(data, group, [](const char *at, int of) {
            return (word_at(at, 0) != 0) == (of == RESULT);
        });
    });
}

// Finds the places in the autograd data by the states that an iterator makes; false if it raises.
bool find_autograd(PyObject *states, TensorPlaces &places) {
    PyObject *steps = PyObject_GetIter(states);
    if (steps == nullptr) return false;
    AutogradPlaces found;
    Py_ssize_t n = 0;
    while (PyObject *groups = PyIter_Next(steps)) {
        keep_agreeing(groups, found);
        Py_DECREF(groups);
        n++;
    }
    Py_DECREF(steps);
    if (PyErr_Occurred()) return false;
    if (n == 0) return true;
    places.autograd = found.data.first();
    places.wants_grad = found.wants_grad.first();
    places.made_by = found.made_by.first();
    return true;
}

// trace_bind(samples for sizes, samples for dtypes and devices, states for autograd) -> the places,
// or None if one is missing. No state disables the route.
PyObject *trace_bind(PyObject *, PyObject *args) {
    PyObject *sizes, *kinds, *states;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyTuple_Type, &sizes, &PyTuple_Type, &kinds, &states))
        return nullptr;
    tensor_places = {};
    if (!torch_api.native_guard) Py_RETURN_NONE;
    TensorPlaces places;
    places.sizes = find_sizes(sizes);
    places.kind = find_kind(kinds);
    if (!find_autograd(states, places)) return nullptr;
    if (places.sizes < 0 || places.kind < 0 || places.autograd < 0 || places.wants_grad < 0 ||
        places.made_by < 0)
        Py_RETURN_NONE;
    tensor_places = places;
    return Py_BuildValue("{s:n,s:n,s:n,s:n,s:n}", "sizes", places.sizes, "kind", places.kind,
                         "autograd", places.autograd, "wants_grad", places.wants_grad, "made_by",
                         places.made_by);
}

// --- comparing -----------------------------------------------------------------------------------

// The cost per tensor is that of the cache lines it occupies. So no unneeded line is read, loads do
// not depend on each other, and adjacent words are one comparison.
template <int DIM> bool group_unchanged(const TensorGroup &group, bool settled) {
    const TensorPlaces places = tensor_places;
    const Py_ssize_t keys = torch_api.keys_offset, handle = torch_api.handle_offset;
    const TensorWords words = group.words;
    const bool same_body = settled && words.steady && counted_setters.tensors;
    for (const TensorGroup::Member &member : group.members) {
        if (!same_body && (Py_TYPE(member.object) != words.type ||
                           word_at((char *)member.object, handle) != (uint64_t)member.impl))
            return false;
        auto *sizes = (const uint64_t *)(member.impl + places.sizes);
        uint64_t other = (word_at(member.impl, keys) ^ words.keys) |
                         (word_at(member.impl, places.kind) ^ words.kind) |
                         (word_at(member.impl, places.autograd) ^ (uint64_t)member.autograd) |
                         (sizes[0] ^ DIM);
        for (int i = 1; i <= DIM; i++)
            other |= (sizes[i] ^ words.sizes[i]) | (sizes[i + INLINE] ^ words.sizes[i + INLINE]);
        if (other != 0) return false;
        if (!words.has_autograd) continue;
        if ((member.autograd[places.wants_grad] != 0) != words.wants_grad) return false;
        if (!words.wants_grad && (word_at(member.autograd, places.made_by) != 0) != words.has_maker)
            return false;
    }
    return true;
}

constexpr bool (*CHECKS[INLINE + 1])(const TensorGroup &, bool) = {
    group_unchanged<0>, group_unchanged<1>, group_unchanged<2>,
    group_unchanged<3>, group_unchanged<4>, group_unchanged<5>};

PyMethodDef methods[] = {{"trace_bind", trace_bind, METH_VARARGS,
                          "Find the offsets of metadata in a tensor; called by runtime.tensors.bind."},
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool TensorTraces::add(PyObject *tensor, bool steady) {
    if (tensor_places.sizes < 0) return false;
    const char *impl = impl_at(tensor);
    auto *sizes = (const uint64_t *)(impl + tensor_places.sizes);
    if (sizes[0] > INLINE) return false;
    TensorWords words{};
    words.type = Py_TYPE(tensor);
    words.steady = steady;
    words.keys = word_at(impl, torch_api.keys_offset);
    words.kind = word_at(impl, tensor_places.kind);
    words.sizes[0] = sizes[0];
    for (uint64_t i = 1; i <= sizes[0]; i++) {
        words.sizes[i] = sizes[i];
        words.sizes[i + INLINE] = sizes[i + INLINE];
    }
    auto *autograd = (const char *)word_at(impl, tensor_places.autograd);
    words.has_autograd = autograd != nullptr;
    if (autograd != nullptr) {
        words.wants_grad = autograd[tensor_places.wants_grad] != 0;
        words.has_maker = !words.wants_grad && word_at(autograd, tensor_places.made_by) != 0;
    }
    auto alike = [&words](const TensorGroup &group) { return group.words == words; };
    auto group = std::find_if(groups.begin(), groups.end(), alike);
    if (group == groups.end()) group = groups.insert(group, {words, {}});
    group->members.push_back({tensor, impl, autograd});
    return true;
}

bool TensorTraces::unchanged(bool settled) const {
    for (const TensorGroup &group : groups)
        if (!CHECKS[group.words.sizes[0]](group, settled)) return false;
    return true;
}

int trace_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
