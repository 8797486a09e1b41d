// The steps of a native program, as `runtime/executor/lower.py` lowers them, and one run over them.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/sampling.h"
#include "cuda/launch.h"
#include "executor/registers.h"
#include "executor/aten_call.h"
#include "tensors/torch_api.h"

enum class StepKind : uint8_t { alloc, scratch, launch, device, otherwise, view, aten, cast, python, free };

constexpr int MAX_RANK = 64;

struct Step {
    StepKind kind;
    bool absolute = false;               // view: offset counts from the storage's start
    bool symbolic = false;               // alloc, scratch, view: sizes, strides and offset are registers
    int32_t slot = -1, base = -1;        // alloc, scratch, view, cast: what is made; view, cast, scratch (or -1: the arena): of what
    int32_t dtype = 0, device_type = 0, device_index = 0;
    int64_t offset = 0;                  // scratch: bytes; view: elements
    std::vector<int64_t> sizes, strides;
    std::vector<int32_t> writes;         // launch, device: slots whose version counters move
    std::vector<int32_t> slots, results; // launch, device, otherwise, python, free: operands; aten, python: where results go (-1: nowhere)
    std::vector<int32_t> numbers;        // launch, Python forms: registers that are handed over
    std::vector<char> reals;             // which of those are floats
    void *kernel = nullptr;
    const char *label = nullptr;         // what profilers call it, in `Steps.labels`; null: nothing
    PyObject *callable = nullptr;        // python, otherwise: f(*tensors) -> tuple; aten, cast: the same, for what has no native way
    Operator op;                         // aten; alloc: empty_strided, where that is called and not the C shim
    std::unique_ptr<DeviceLaunch> device; // device
};

struct Steps {
    std::vector<Step> steps;
    std::vector<int32_t> outputs;
    std::vector<std::pair<int32_t, PyObject *>> constants;
    Numbers numbers;
    int32_t n_inputs = 0, n_numbers = 0, n_slots = 0;  // tensors, then Python numbers, that a call brings
    int64_t arena_bytes = 0, static_bytes = 0;
    int32_t arena_register = -1;         // where the arena's size is, if it is not known before
    int32_t runs = 0;                    // under way (the GIL guards it)
    bool left = false;                   // nobody has them but the runs under way: the last one frees them
    bool calls_aten = false;
    bool captured = false;               // a CUDA graph may hold its kernels
    int32_t first_write = INT32_MAX;     // the first step that may write to an input or a constant
    const char *label = nullptr;         // of the whole program
    PyObject *labels = nullptr;          // the strings that labels are in
    ProgramClock clock;

    ~Steps();
};

// From the tuple of step tuples that `runtime.executor.lower` makes; false with a Python error set.
bool steps_read(PyObject *lowered, Steps &out);

// Slots that a step names, and those that a kernel writes to; false with a Python error set.
bool steps_read_slots(PyObject *tuple, const Steps &steps, std::vector<int32_t> &out);
bool steps_read_writes(PyObject *tuple, const Steps &steps, Step &step);

// Frees them, at once or when the last run under way is over.
void steps_free(Steps *steps);

constexpr int RUN_FAILED = -1, RUN_BEGUN = -2;  // with a Python error set; begun: inputs may have been written to by then

// 0, RUN_FAILED or RUN_BEGUN. `owned`: the inputs once more, where the run is to let go of each after its last use.
int steps_run(Steps &steps, PyObject *const *inputs, PyObject **outputs, PyObject **owned = nullptr);
