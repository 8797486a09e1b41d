// Reads the step tuples that `runtime.executor.lower` makes.
#include <cstring>

#include "executor/steps.h"
#include "tensors/tensor.h"

bool steps_read_slots(PyObject *tuple, const Steps &steps, std::vector<int32_t> &out) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        long slot = item == Py_None ? -1 : PyLong_AsLong(item);
        if (slot < -1 || slot >= steps.n_slots) {
            return PyErr_SetString(PyExc_ValueError,
                                   "graftjit: a step names a slot that the program lacks"),
                   false;
        }
        out.push_back((int32_t)slot);
    }
    return !PyErr_Occurred();
}

bool steps_read_writes(PyObject *tuple, const Steps &steps, Step &step) {
    if (!steps_read_slots(tuple, steps, step.writes)) return false;
    if (step.writes.empty() || torch_api.bump_version != nullptr) return true;
    return PyErr_SetString(PyExc_ValueError,
                           "graftjit: a kernel writes to an input, and versions cannot be moved"),
           false;
}

namespace {

bool read_ints(PyObject *tuple, std::vector<int64_t> &out) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
        out.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
    return !PyErr_Occurred();
}

bool good_registers(const Steps &steps, const std::vector<int64_t> &named) {
    for (int64_t one : named)
        if (one < 0 || one >= (int64_t)steps.numbers.registers.size()) {
            return PyErr_SetString(PyExc_ValueError,
                                   "graftjit: a step names a number that the program lacks"),
                   false;
        }
    return true;
}

// ((register, is a float), ...)
bool read_numbers(PyObject *tuple, const Steps &steps, Step &step) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        int number, is_real;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tuple, i), "ip", &number, &is_real) ||
            !good_registers(steps, {number}))
            return false;
        step.numbers.push_back(number);
        step.reals.push_back((char)is_real);
    }
    return true;
}

bool good_slot(const Steps &steps, int32_t slot) {
    if (slot >= 0 && slot < steps.n_slots) return true;
    return PyErr_SetString(PyExc_ValueError,
                           "graftjit: a step names a slot that the program lacks"),
           false;
}

// Reads sizes and strides, or the registers that hold them.
bool read_layout(PyObject *sizes, PyObject *strides, const Steps &steps, Step &step) {
    if (!read_ints(sizes, step.sizes) || !read_ints(strides, step.strides)) return false;
    if (step.sizes.size() <= MAX_RANK && step.strides.size() == step.sizes.size())
        return !step.symbolic ||
               (good_registers(steps, step.sizes) && good_registers(steps, step.strides));
    return PyErr_SetString(PyExc_ValueError, "graftjit: a step whose sizes and strides do not fit"),
           false;
}

bool read_alloc(PyObject *args, Steps &steps, Step &step) {
    PyObject *sizes, *strides, *dtype, *device, *callable, *numbers, *plan;
    long long nbytes;
    int symbolic;
    step.kind = StepKind::alloc;
    if (!PyArg_ParseTuple(args, "iO!O!OOLOpO!O", &step.slot, &PyTuple_Type, &sizes, &PyTuple_Type,
                          &strides, &dtype, &device, &nbytes, &callable, &symbolic, &PyTuple_Type,
                          &numbers, &plan))
        return false;
    step.callable = Py_NewRef(callable);
    step.results = {step.slot};
    step.symbolic = symbolic;
    steps.static_bytes += nbytes;
    if (plan != Py_None && !(operator_read(plan, step.op) &&
                             operator_numbers_fit(step.op, steps.numbers.registers.size())))
        return false;
    step.dtype = dtype_code(dtype);
    return !PyErr_Occurred() && good_slot(steps, step.slot) &&
           device_code(device, &step.device_type, &step.device_index) == 0 &&
           read_layout(sizes, strides, steps, step) && read_numbers(numbers, steps, step);
}

bool read_scratch(PyObject *args, Steps &steps, Step &step) {
    long long offset, nbytes;
    int symbolic;
    step.kind = StepKind::scratch;
    if (!PyArg_ParseTuple(args, "iLLpi", &step.slot, &offset, &nbytes, &symbolic, &step.base))
        return false;
    step.offset = offset;
    step.symbolic = symbolic;
    if (!good_slot(steps, step.slot) || (step.base >= 0 && !good_slot(steps, step.base)))
        return false;
    if (symbolic) return good_registers(steps, {step.offset});
    bool beyond = step.base < 0 && steps.arena_register < 0 && offset + nbytes > steps.arena_bytes;
    if (offset >= 0 && nbytes >= 0 && !beyond) return true;
    return PyErr_SetString(PyExc_ValueError, "graftjit: scratch memory beyond the arena"), false;
}

bool read_launch(PyObject *args, Steps &steps, Step &step) {
    unsigned long long address;
    PyObject *slots, *writes, *numbers;
    step.kind = StepKind::launch;
    if (!PyArg_ParseTuple(args, "KO!O!O!", &address, &PyTuple_Type, &slots, &PyTuple_Type, &writes,
                          &PyTuple_Type, &numbers) ||
        !read_numbers(numbers, steps, step))
        return false;
    step.kernel = (void *)address;
    if (address == 0) PyErr_SetString(PyExc_ValueError, "graftjit: a kernel without an address");
    return address != 0 && steps_read_slots(slots, steps, step.slots) &&
           steps_read_writes(writes, steps, step);
}

bool read_view(PyObject *args, Steps &steps, Step &step) {
    PyObject *sizes, *strides;
    long long offset;
    int absolute, symbolic;
    step.kind = StepKind::view;
    if (!PyArg_ParseTuple(args, "iiO!O!Lpp", &step.slot, &step.base, &PyTuple_Type, &sizes,
                          &PyTuple_Type, &strides, &offset, &absolute, &symbolic))
        return false;
    step.offset = offset;
    step.absolute = absolute;
    step.symbolic = symbolic;
    return good_slot(steps, step.slot) && good_slot(steps, step.base) &&
           read_layout(sizes, strides, steps, step) &&
           (!symbolic || good_registers(steps, {step.offset}));
}

bool read_python(PyObject *args, Steps &steps, Step &step) {
    PyObject *callable, *slots, *results, *numbers;
    step.kind = StepKind::python;
    if (!PyArg_ParseTuple(args, "OO!O!O!", &callable, &PyTuple_Type, &slots, &PyTuple_Type,
                          &results, &PyTuple_Type, &numbers))
        return false;
    step.callable = Py_NewRef(callable);
    steps.calls_aten = true;
    return read_numbers(numbers, steps, step) && steps_read_slots(slots, steps, step.slots) &&
           steps_read_slots(results, steps, step.results);
}

bool read_otherwise(PyObject *args, Steps &steps, Step &step) {
    return read_python(args, steps, step) && (step.kind = StepKind::otherwise, true);
}

bool read_aten(PyObject *args, Steps &steps, Step &step) {
    PyObject *plan, *callable, *slots, *results, *numbers;
    step.kind = StepKind::aten;
    if (!PyArg_ParseTuple(args, "O!OO!O!O!", &PyTuple_Type, &plan, &callable, &PyTuple_Type, &slots,
                          &PyTuple_Type, &results, &PyTuple_Type, &numbers))
        return false;
    step.callable = Py_NewRef(callable);
    steps.calls_aten = true;
    return operator_read(plan, step.op) &&
           operator_numbers_fit(step.op, steps.numbers.registers.size()) &&
           read_numbers(numbers, steps, step) && steps_read_slots(slots, steps, step.slots) &&
           steps_read_slots(results, steps, step.results);
}

bool read_cast(PyObject *args, Steps &steps, Step &step) {
    PyObject *dtype, *device, *callable;
    step.kind = StepKind::cast;
    if (!PyArg_ParseTuple(args, "iiOOO", &step.slot, &step.base, &dtype, &device, &callable))
        return false;
    step.callable = Py_NewRef(callable);
    step.slots = {step.base};
    step.results = {step.slot};
    steps.calls_aten = true;
    step.dtype = dtype_code(dtype);
    return !PyErr_Occurred() && good_slot(steps, step.slot) && good_slot(steps, step.base) &&
           device_code(device, &step.device_type, &step.device_index) == 0;
}

bool read_check(PyObject *args, Steps &steps, Step &step) {
    PyObject *callable, *slots;
    int expected;
    step.kind = StepKind::check;
    if (!PyArg_ParseTuple(args, "OO!p", &callable, &PyTuple_Type, &slots, &expected)) return false;
    step.callable = Py_NewRef(callable);
    step.expected = expected;
    return steps_read_slots(slots, steps, step.slots) && step.slots.size() == 1 &&
           good_slot(steps, step.slots[0]);
}

bool read_free(PyObject *args, Steps &steps, Step &step) {
    PyObject *slots;
    step.kind = StepKind::free;
    return PyArg_ParseTuple(args, "O!", &PyTuple_Type, &slots) &&
           steps_read_slots(slots, steps, step.slots);
}

bool read_followed(PyObject *args, Steps &steps, Step &step);

const struct {
    const char *name;
    bool (*read)(PyObject *args, Steps &steps, Step &step);
} READERS[] = {
    {"alloc", read_alloc},         {"scratch", read_scratch},
    {"launch", read_launch},       {"device", device_launch_read},
    {"otherwise", read_otherwise}, {"view", read_view},
    {"python", read_python},       {"aten", read_aten},
    {"cast", read_cast},           {"check", read_check},
    {"free", read_free},           {"followed", read_followed},
};

bool read_step(PyObject *lowered, Steps &steps, Step &step) {
    const char *kind;
    PyObject *args;
    if (!PyArg_ParseTuple(lowered, "sO!", &kind, &PyTuple_Type, &args)) return false;
    for (const auto &reader : READERS)
        if (std::strcmp(reader.name, kind) == 0) return reader.read(args, steps, step);
    return PyErr_Format(PyExc_ValueError, "graftjit: no such step: %s", kind), false;
}

// Its arguments are another step.
bool read_followed(PyObject *args, Steps &steps, Step &step) {
    step.followed = true;
    return read_step(args, steps, step) && step.slots.size() >= 1;
}

bool read_constants(PyObject *constants, Steps &steps) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(constants, &at, &key, &value)) {
        int32_t slot = (int32_t)PyLong_AsLong(key);
        if (PyErr_Occurred() || !good_slot(steps, slot)) return false;
        steps.constants.emplace_back(slot, Py_NewRef(value));
    }
    return true;
}

const char *read_label(PyObject *text) {
    const char *label = PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
    PyErr_Clear();  // a name that is not valid UTF-8 has no range
    return label;
}

// The program's label, then a string or None for each step.
void read_labels(PyObject *labels, Steps &steps) {
    if (PyTuple_GET_SIZE(labels) != (Py_ssize_t)steps.steps.size() + 1) return;
    steps.labels = Py_NewRef(labels);
    steps.label = read_label(PyTuple_GET_ITEM(labels, 0));
    for (size_t i = 0; i < steps.steps.size(); i++)
        steps.steps[i].label = read_label(PyTuple_GET_ITEM(labels, (Py_ssize_t)i + 1));
}

}  // namespace

Steps::~Steps() {
    for (Step &step : steps) Py_XDECREF(step.callable);
    for (auto &[slot, object] : constants) Py_DECREF(object);
    Py_XDECREF(labels);
}

bool steps_read(PyObject *lowered, Steps &out) {
    PyObject *steps, *outputs, *constants, *numbers, *labels = nullptr;
    long long arena;
    if (!PyArg_ParseTuple(lowered, "iiiLiO!O!O!O|O!i", &out.n_inputs, &out.n_numbers, &out.n_slots,
                          &arena, &out.arena_register, &PyTuple_Type, &steps, &PyTuple_Type,
                          &outputs, &PyDict_Type, &constants, &numbers, &PyTuple_Type, &labels,
                          &out.first_write) ||
        (numbers != Py_None && !numbers_read(numbers, out.n_inputs, out.n_numbers, out.numbers)))
        return false;
    out.arena_bytes = out.static_bytes = arena;
    if (out.arena_register >= 0 && !good_registers(out, {out.arena_register})) return false;
    if (out.n_inputs > out.n_slots || !steps_read_slots(outputs, out, out.outputs) ||
        !read_constants(constants, out)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "graftjit: a program with fewer slots than inputs");
        return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(steps); i++) {
        out.steps.emplace_back();
        if (!read_step(PyTuple_GET_ITEM(steps, i), out, out.steps.back())) return false;
    }
    if (labels != nullptr) read_labels(labels, out);
    return true;
}
