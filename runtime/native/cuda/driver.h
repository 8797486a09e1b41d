// The functions of the CUDA driver and of torch's streams that the native executor calls.
// runtime/cuda/driver.py finds their addresses.
//
// Functions and numbers are declared as in the CUDA Driver API reference (cuda.h of CUDA 12.0):
// CUDA headers are not needed at build time, and libcuda is loaded only if a program has a GPU
// kernel.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

struct CudaDriver {
    // cuLaunchKernel, which also accepts a CUkernel as function: grid, block, bytes of shared
    // memory, stream, parameters
    int (*launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  unsigned shared, void *stream, void **parameters, void **extra);
    int (*get_current)(void **context);  // cuCtxGetCurrent
    int (*get_device)(int *device);      // cuCtxGetDevice: the device of the current context
    int (*push)(void *context);          // cuCtxPushCurrent_v2
    int (*pop)(void **context);          // cuCtxPopCurrent_v2
    int (*set_current)(void *context);   // cuCtxSetCurrent
    // cuStreamIsCapturing; null in a driver without it
    int (*is_capturing)(void *stream, int *status);
    int32_t (*current_stream)(int32_t device, void **stream);  // aoti_torch_get_current_cuda_stream
    // aoti_torch_get_current_device_index; null in a torch without it
    int32_t (*current_device)(int32_t *device);
};

constexpr int MAX_DEVICES = 64;  // torch's limit
constexpr int CUDA_SUCCESS = 0;
constexpr int NO_STREAM = -1;  // not a code of the driver: torch returned no stream

extern CudaDriver cuda_driver;

struct PrimaryContext {
    void *context;  // null: no program was loaded for the device
    int number;    // the driver's number of the device
};
extern PrimaryContext primary_contexts[MAX_DEVICES];  // by torch's device index

// The device state of one run of a program: streams, and the context that is current on this
// thread.
class DeviceRun {
  public:
    // Gets torch's current stream of the device, which is read at the first launch of a run, and
    // makes the device's context current if it is not. Returns a code of the driver. `captured`:
    // whether a CUDA graph records the stream; set only at the first launch.
    int enter(int32_t device, void **stream, bool *captured);

    // Call before any other step than a launch: restores the previous current context, since the
    // step may change it.
    int leave() {
        device_ = -1;
        return pushed_ ? give_back() : CUDA_SUCCESS;
    }

  private:
    int give_back();
    int make_current(int32_t device);

    void *streams_[MAX_DEVICES];  // valid if the bit in known_ is set
    uint64_t known_ = 0;
    int32_t device_ = -1;  // the device whose context is current
    bool pushed_ = false;
};

// Sets the Python exception that runtime/cuda/driver.py makes for an error code; `what` is the
// failed action. Needs the GIL. Returns -1.
int cuda_failed(int code, const char *what);

int cuda_driver_init(PyObject *module);
