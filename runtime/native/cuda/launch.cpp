#include "cuda/launch.h"

#include <climits>
#include <cstring>

#include "executor/steps.h"

int64_t DeviceLaunch::grid(const int64_t *registers) const {
    if (programs_register < 0) return programs;
    int64_t found = registers[programs_register];
    return found > INT32_MAX ? -1 : found < 0 ? 0 : found;
}

bool DeviceLaunch::fill(const int64_t *registers, uint64_t *values, size_t pointers) const {
    values += pointers;
    for (size_t i = 0; i < numbers.size(); i++, values++) {
        int64_t bits = registers[numbers[i]];
        if (kinds[i] == 'i' && bits != (int32_t)bits) return false;
        if (kinds[i] == 'f') {
            float narrow = (float)as_double(bits);
            std::memcpy(values, &narrow, sizeof narrow);
        } else {
            std::memcpy(values, &bits, sizeof bits);  // an int32 is the first four bytes
        }
    }
    std::memset(values, 0, sizeof *values * hidden);
    return true;
}

int DeviceLaunch::make_general() {
    PyObject *made = PyObject_CallNoArgs(general);
    unsigned long long found;
    unsigned int bytes;
    bool good = made != nullptr && PyArg_ParseTuple(made, "KI", &found, &bytes);
    if (good) {
        general_shared = bytes;
        general_function = (void *)found;
    }
    Py_XDECREF(made);
    return good ? 0 : -1;
}

int DeviceLaunch::launch(void *stream, int64_t count_of_programs, uint64_t *values, size_t count,
                         bool any) const {
    void *parameters[MAX_PARAMETERS];
    for (size_t i = 0; i < count; i++) parameters[i] = values + i;
    return cuda_driver.launch(any ? general_function.load() : function, (unsigned)count_of_programs,
                              1, 1, threads, 1, 1, any ? general_shared : shared, stream,
                              parameters, nullptr);
}

int DeviceLaunch::failed(int code) const {
    std::string what = "launching the kernel " + name + " on cuda:" + std::to_string(device);
    return cuda_failed(code, what.c_str());
}

int DeviceLaunch::refused(const int64_t *registers) const {
    if (grid(registers) < 0)
        PyErr_Format(PyExc_RuntimeError,
                     "graftjit: the kernel %s needs %lld programs, and a launch takes %d",
                     name.c_str(), (long long)registers[programs_register], INT32_MAX);
    else
        PyErr_Format(PyExc_OverflowError, "graftjit: a number of the kernel %s is beyond 32 bits",
                     name.c_str());
    return -1;
}

bool device_launch_read(PyObject *args, Steps &steps, Step &step) {
    const char *name, *kinds;
    unsigned long long function;
    long long programs;
    PyObject *slots, *writes, *numbers, *keep, *aligned, *general;
    step.kind = StepKind::device;
    step.device = std::make_unique<DeviceLaunch>();
    DeviceLaunch &to = *step.device;
    if (!PyArg_ParseTuple(args, "sKiLiIIIO!O!O!sOO!O", &name, &function, &to.device, &programs,
                          &to.programs_register, &to.threads, &to.shared, &to.hidden, &PyTuple_Type,
                          &slots, &PyTuple_Type, &writes, &PyTuple_Type, &numbers, &kinds, &keep,
                          &PyTuple_Type, &aligned, &general) ||
        !steps_read_slots(slots, steps, step.slots) || !steps_read_writes(writes, steps, step))
        return false;
    to.name = name;
    to.kinds = kinds;
    to.function = (void *)function;
    to.programs = programs;
    to.keep = Py_NewRef(keep);
    to.general = Py_NewRef(general);
    auto n_registers = (int32_t)steps.numbers.registers.size();
    bool good = function != 0 && to.device >= 0 && to.device < MAX_DEVICES && programs >= 0 &&
                programs <= INT32_MAX && to.programs_register < n_registers &&
                to.kinds.size() == (size_t)PyTuple_GET_SIZE(numbers);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); i++) {
        to.numbers.push_back((int32_t)PyLong_AsLong(PyTuple_GET_ITEM(numbers, i)));
        good = good && to.numbers.back() >= 0 && to.numbers.back() < n_registers;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(aligned); i++) {
        to.aligned.push_back((int32_t)PyLong_AsLong(PyTuple_GET_ITEM(aligned, i)));
        good = good && to.aligned.back() >= 0 && (size_t)to.aligned.back() < step.slots.size() &&
               general != Py_None;
    }
    good =
        good && to.parameters(step.slots.size()) <= MAX_PARAMETERS && cuda_driver.launch != nullptr;
    if (!good && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "graftjit: a launch that cannot be read");
    return good;
}

int device_launches_captured(Steps &steps) {
    steps.captured = true;
    PyObject *module = PyImport_ImportModule("graftjit.runtime.cuda.driver");
    for (const Step &step : steps.steps) {
        if (module == nullptr) break;
        if (step.device == nullptr) continue;
        PyObject *done = PyObject_CallMethod(module, "captured", "O", step.device->keep);
        if (done == nullptr) Py_CLEAR(module);
        Py_XDECREF(done);
    }
    Py_XDECREF(module);
    return PyErr_Occurred() ? -1 : 0;
}
