#include "cuda/driver.h"

#include "tensors/torch_api.h"

CudaDriver cuda_driver = {};
PrimaryContext primary_contexts[MAX_DEVICES] = {};

int DeviceRun::enter(int32_t device, void **stream, bool *captured) {
    *captured = false;
    if (device_ != device)
        if (int code = make_current(device)) return code;
    uint64_t bit = uint64_t(1) << device;
    if (!(known_ & bit)) {
        if (cuda_driver.current_stream(device, &streams_[device])) return NO_STREAM;
        // The default (null) stream cannot be recorded.
        int status = 0;
        if (streams_[device] != nullptr && cuda_driver.is_capturing != nullptr)
            if (int code = cuda_driver.is_capturing(streams_[device], &status)) return code;
        *captured = status != 0;
        known_ |= bit;
    }
    *stream = streams_[device];
    return CUDA_SUCCESS;
}

// Whether this is torch's current device. A thread without a context keeps that of this device, as
// after a kernel of torch's: libraries such as cuBLAS need one.
static bool is_torchs(int32_t device) {
    int32_t current = -1;
    return cuda_driver.current_device != nullptr && !cuda_driver.current_device(&current) &&
           current == device;
}

// Keeps a current context of the same device that is not its primary one (a green context of
// torch), since streams belong to it.
int DeviceRun::make_current(int32_t device) {
    if (int code = leave()) return code;
    auto [wanted, number] = primary_contexts[device];
    void *current = nullptr;
    if (int code = cuda_driver.get_current(&current)) return code;
    int whose = -1;
    if (current != wanted && current != nullptr)
        if (int code = cuda_driver.get_device(&whose)) return code;
    if (current == nullptr && is_torchs(device)) {
        if (int code = cuda_driver.set_current(wanted)) return code;
    } else if (current != wanted && (current == nullptr || whose != number)) {
        if (int code = cuda_driver.push(wanted)) return code;
        pushed_ = true;
    }
    device_ = device;
    return CUDA_SUCCESS;
}

int DeviceRun::give_back() {
    void *ours;
    pushed_ = false;
    return cuda_driver.pop(&ours);
}

int cuda_failed(int code, const char *what) {
    PyObject *module = PyImport_ImportModule("graftjit.runtime.cuda.driver");
    PyObject *done =
        module == nullptr ? nullptr : PyObject_CallMethod(module, "fail", "is", code, what);
    Py_XDECREF(done);
    Py_XDECREF(module);
    if (!PyErr_Occurred()) PyErr_Format(PyExc_RuntimeError, "CUDA error %d while %s", code, what);
    return -1;
}

namespace {

// driver_bind(addresses): addresses of the members of CudaDriver, in order; 0 for a missing one.
PyObject *driver_bind(PyObject *, PyObject *addresses) {
    void *found[9];
    static_assert(sizeof found == sizeof cuda_driver);
    if (!PyTuple_Check(addresses) || PyTuple_GET_SIZE(addresses) != 9)
        return PyErr_SetString(PyExc_ValueError, "driver_bind: nine addresses"), nullptr;
    for (int i = 0; i < 9; i++) found[i] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(addresses, i));
    if (PyErr_Occurred()) return nullptr;
    *(void **)&cuda_driver.launch = found[0];
    *(void **)&cuda_driver.get_current = found[1];
    *(void **)&cuda_driver.get_device = found[2];
    *(void **)&cuda_driver.push = found[3];
    *(void **)&cuda_driver.pop = found[4];
    *(void **)&cuda_driver.set_current = found[5];
    *(void **)&cuda_driver.is_capturing = found[6];
    *(void **)&cuda_driver.current_stream = found[7];
    *(void **)&cuda_driver.current_device = found[8];
    Py_RETURN_NONE;
}

// driver_context(device, number, address): the primary context of a torch device, and the driver's
// number of the device.
PyObject *driver_context(PyObject *, PyObject *args) {
    int device, number;
    unsigned long long context;
    if (!PyArg_ParseTuple(args, "iiK", &device, &number, &context)) return nullptr;
    if (device < 0 || device >= MAX_DEVICES)
        return PyErr_Format(PyExc_ValueError, "driver_context: no device %d", device), nullptr;
    primary_contexts[device] = {(void *)context, number};
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"driver_bind", driver_bind, METH_O, "Where the CUDA driver is; called by runtime.driver."},
    {"driver_context", driver_context, METH_VARARGS,
     "The primary context of a device; called by runtime.driver."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int cuda_driver_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
