// The CUDA driver and torch's streams, as far as the native executor calls them: what runtime/cuda/driver.py has found.
//
// Functions and numbers are declared here after the CUDA Driver API reference (cuda.h of CUDA 12.0): there is no header
// of CUDA at build time, and no library of it in a process that has no kernel for a GPU.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

struct CudaDriver {
    // cuLaunchKernel: a CUkernel may stand for the CUfunction; grid, block, bytes of shared memory, stream, parameters
    int (*launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                  void *stream, void **parameters, void **extra);
    int (*get_current)(void **context);             // cuCtxGetCurrent
    int (*get_device)(int *device);                 // cuCtxGetDevice: that of the current context
    int (*push)(void *context);                     // cuCtxPushCurrent_v2
    int (*pop)(void **context);                     // cuCtxPopCurrent_v2
    int (*is_capturing)(void *stream, int *status); // cuStreamIsCapturing; null in a driver that lacks it
    int32_t (*current_stream)(int32_t device, void **stream); // aoti_torch_get_current_cuda_stream
};

constexpr int MAX_DEVICES = 64; // as many as torch numbers
constexpr int CUDA_SUCCESS = 0;
constexpr int NO_STREAM = -1;   // no code of the driver: torch did not tell its stream

extern CudaDriver cuda_driver;

struct PrimaryContext {
    void *context; // null: no program has been loaded for the device
    int number;    // the driver's number of the device
};
extern PrimaryContext primary_contexts[MAX_DEVICES]; // by torch's number

// What one run of a program knows of its devices: their streams, and whose context is current on this thread.
class DeviceRun {
  public:
    // The stream that is torch's current one at the first launch of this run, asked for once a device; and its context
    // is made the current one if that of another device is, or none. A code of the driver. `captured`: whether a CUDA graph
    // records the stream, told once.
    int enter(int32_t device, void **stream, bool *captured);

    // Before anything that is no launch: it finds the context that was current, and may make another one so.
    int leave() {
        device_ = -1;
        return pushed_ ? give_back() : CUDA_SUCCESS;
    }

  private:
    int give_back();
    int make_current(int32_t device);

    void *streams_[MAX_DEVICES]; // those whose bit is set
    uint64_t known_ = 0;
    int32_t device_ = -1;        // whose context is known to be current
    bool pushed_ = false;
};

// A failed call as the Python exception that runtime/cuda/driver.py makes of its code; `what` was being done. Needs the GIL; -1.
int cuda_failed(int code, const char *what);

int cuda_driver_init(PyObject *module);
