#include "tensors/tensor_trace.h"

#include "tensors/history.h"

#include <dlfcn.h>

namespace {

PyObject *in_python = nullptr;  // runtime.guards.tensor_access.history

// torch::autograd::impl::get_view_autograd_meta(TensorBase const&): null for all but views. Null
// itself if the route is off.
void *(*view_data)(Handle) = nullptr;

enum Kind { UNKNOWN, LEAF, RESULT };
const char *const NAMES[] = {"", "leaf", "result"};

// The kind of a tensor by memory words; UNKNOWN of views, and if the words are not known.
Kind kind_by_words(PyObject *tensor) {
    if (view_data == nullptr || tensor_places.made_by < 0) return UNKNOWN;
    Handle handle = handle_of(tensor);
    if (view_data(handle) != nullptr) return UNKNOWN;
    auto *data = *(const char **)((const char *)impl_of(handle) + tensor_places.autograd);
    bool made = data != nullptr && *(void *const *)(data + tensor_places.made_by) != nullptr;
    return made ? RESULT : LEAF;
}

bool is_text(PyObject *value, const char *text) {
    return PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(value, text) == 0;
}

// history_bind(history, samples): the function in Python, and pairs of a tensor and its history.
// No samples turn the route off.
PyObject *history_bind(PyObject *, PyObject *args) {
    PyObject *function, *samples;
    if (!PyArg_ParseTuple(args, "OO!", &function, &PyList_Type, &samples)) return nullptr;
    Py_XSETREF(in_python, Py_NewRef(function));
    *(void **)&view_data =
        PyList_GET_SIZE(samples) == 0 || torch_api.library == nullptr
            ? nullptr
            : dlsym(torch_api.library,
                    "_ZN5torch8autograd4impl22get_view_autograd_metaERKN2at10TensorBaseE");
    int known[3] = {};
    bool same = true;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(samples); i++) {
        PyObject *tensor, *history;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(samples, i), "OO", &tensor, &history)) return nullptr;
        Kind kind = kind_by_words(tensor);
        same = same && (kind == UNKNOWN || is_text(history, NAMES[kind]));
        known[kind]++;
    }
    if (!same || !known[LEAF] || !known[RESULT]) view_data = nullptr;
    torch_route("history", view_data == nullptr ? "python" : "words");
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"history_bind", history_bind, METH_VARARGS,
     "Find how to read a tensor's history; called by runtime.guards.tensor_access.bind."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool tensor_history_is(PyObject *tensor, PyObject *expected) {
    if (torch_api_ready() < 0) {
        PyErr_Clear();
        return false;
    }
    Kind kind = kind_by_words(tensor);
    if (kind != UNKNOWN) return is_text(expected, NAMES[kind]);
    // null if binding was interrupted
    PyObject *found = in_python == nullptr ? nullptr : PyObject_CallOneArg(in_python, tensor);
    bool same = found != nullptr && PyUnicode_Compare(found, expected) == 0;
    Py_XDECREF(found);
    PyErr_Clear();
    return same;
}

int history_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
