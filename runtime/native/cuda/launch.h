// One kernel launch on a GPU: its constant part, and its parameters in a call.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/driver.h"

constexpr uint64_t ALIGNMENT = 16;  // bytes
constexpr size_t MAX_PARAMETERS = 1024;  // the driver takes 4 KB of them; since CUDA 12.1, 32 KB

struct DeviceLaunch {
    std::string name;
    void *function = nullptr;  // a CUkernel
    int32_t device = 0;
    int64_t programs = 0;
    int32_t programs_register = -1;  // register of the number of programs, if it is symbolic
    uint32_t threads = 0, shared = 0, hidden = 0;
    std::vector<int32_t> numbers;   // registers passed after the pointers
    std::string kinds;              // of the numbers: i int32, q int64, f float, d double
    PyObject *keep = nullptr;       // the kernel's library
    std::vector<int32_t> aligned;   // positions of pointers that must be multiples of ALIGNMENT
    PyObject *general = nullptr;    // loads the kernel for any pointers, which is then stored here
    std::atomic<void *> general_function{nullptr};
    uint32_t general_shared = 0;

    DeviceLaunch() = default;
    DeviceLaunch(const DeviceLaunch &) = delete;
    ~DeviceLaunch() { Py_XDECREF(keep), Py_XDECREF(general); }

    // Whether the kernel requires an alignment that a pointer does not have.
    bool misaligned(const uint64_t *values) const {
        for (int32_t at : aligned)
            if (values[at] % ALIGNMENT != 0) return true;
        return false;
    }

    // Loads the general kernel. Needs the GIL; -1 with a Python error set.
    int make_general();

    size_t parameters(size_t pointers) const { return pointers + numbers.size() + hidden; }

    // The number of programs of this call; -1 if it exceeds the limit of a launch.
    int64_t grid(const int64_t *registers) const;

    // Writes the numbers and the hidden pointers after the `pointers` values. False if a number
    // does not fit its kind.
    bool fill(const int64_t *registers, uint64_t *values, size_t pointers) const;

    // Launches; returns a code of the driver. `any`: use the general kernel.
    int launch(void *stream, int64_t programs, uint64_t *values, size_t count, bool any) const;

    // Set the exception for such a code, or for a call that `grid` or `fill` rejects. Need the GIL;
    // return -1.
    int failed(int code) const;
    int refused(const int64_t *registers) const;
};

struct Steps;
struct Step;

// Reads the tuple to which `runtime.executor.lower` lowers a DeviceLaunch; false with a Python
// error set.
bool device_launch_read(PyObject *args, Steps &steps, Step &step);

// Keeps the libraries of the program's kernels loaded for good, since a recorded CUDA graph replays
// them. Needs the GIL; -1 with a Python error set.
int device_launches_captured(Steps &steps);
