// One launch of a kernel on a GPU: what is known of it before a call, and its parameters in a call.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/driver.h"

constexpr uint64_t ALIGNMENT = 16; // bytes
constexpr size_t MAX_PARAMETERS = 1024; // the driver takes 4 KB of them, from CUDA 12.1 on 32

struct DeviceLaunch {
    std::string name;
    void *function = nullptr;            // a CUkernel
    int32_t device = 0;
    int64_t programs = 0;
    int32_t programs_register = -1;      // where their number is, if it is not known before
    uint32_t threads = 0, shared = 0, hidden = 0;
    std::vector<int32_t> numbers;        // registers handed over, behind the pointers
    std::string kinds;                   // how: i int32, q int64, f float, d double
    PyObject *keep = nullptr;            // the kernel's library
    std::vector<int32_t> aligned;        // pointers that are to be multiples of ALIGNMENT; of others
    PyObject *general = nullptr;         // gives the kernel that takes any, which is then here
    std::atomic<void *> general_function{nullptr};
    uint32_t general_shared = 0;

    DeviceLaunch() = default;
    DeviceLaunch(const DeviceLaunch &) = delete;
    ~DeviceLaunch() { Py_XDECREF(keep), Py_XDECREF(general); }

    // Are there pointers that the kernel does not take?
    bool misaligned(const uint64_t *values) const {
        for (int32_t at : aligned)
            if (values[at] % ALIGNMENT != 0) return true;
        return false;
    }

    // Has the other kernel made. Needs the GIL; -1 with a Python error set.
    int make_general();

    size_t parameters(size_t pointers) const { return pointers + numbers.size() + hidden; }

    // How many programs this call has; -1 where a launch cannot have so many.
    int64_t grid(const int64_t *registers) const;

    // Writes the numbers and the hidden pointers behind the `pointers` values that are there. False: a number is beyond
    // its kind.
    bool fill(const int64_t *registers, uint64_t *values, size_t pointers) const;

    // A code of the driver. `any`: of the kernel that takes any pointers.
    int launch(void *stream, int64_t programs, uint64_t *values, size_t count, bool any) const;

    // The exception for such a code, or for a call that the two functions above refuse. Needs the GIL; -1.
    int failed(int code) const;
    int refused(const int64_t *registers) const;
};

struct Steps;
struct Step;

// From the tuple that `runtime.executor.lower` lowers a DeviceLaunch to; false with a Python error set.
bool device_launch_read(PyObject *args, Steps &steps, Step &step);

// Libraries of the program's kernels stay for good: a CUDA graph that somebody keeps replays them. Needs the GIL; -1 with
// a Python error set.
int device_launches_captured(Steps &steps);
