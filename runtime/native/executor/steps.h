// The steps of a native program, as `runtime/executor/lower.py` lowers them, and their execution.
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

enum class StepKind : uint8_t {
    alloc,
    scratch,
    launch,
    device,
    otherwise,
    view,
    aten,
    cast,
    check,
    python,
    free
};

constexpr int MAX_RANK = 64;

struct Step {
    StepKind kind;
    // view: the offset is relative to the start of the storage
    bool absolute = false;
    // alloc, scratch, view: sizes, strides and offset are registers
    bool symbolic = false;
    // aten, python: a view of the first slot, made with grad mode as at the call of the program if
    // its base needs no gradient: a view that is made without it cannot be written to later
    bool followed = false;
    // check: the truth of the first slot with which the program goes on
    bool expected = false;
    // alloc, scratch, view, cast: the result; view, cast, scratch: its base (scratch: -1 is the
    // arena)
    int32_t slot = -1, base = -1;
    int32_t dtype = 0, device_type = 0, device_index = 0;
    int64_t offset = 0;  // scratch: bytes; view: elements
    std::vector<int64_t> sizes, strides;
    // launch, device: slots whose version counters are incremented
    std::vector<int32_t> writes;
    // launch, device, otherwise, python, free: operands; aten, python: results (-1: unused)
    std::vector<int32_t> slots, results;
    std::vector<int32_t> numbers;  // launch, Python forms: registers passed as arguments
    std::vector<char> reals;       // which of those are floats
    void *kernel = nullptr;
    // label for profilers, stored in `Steps.labels`; null: none
    const char *label = nullptr;
    // python, otherwise: f(*tensors) -> tuple; aten, cast: the same, if there is no native route;
    // check: the same, which raises
    PyObject *callable = nullptr;
    // aten; alloc: empty_strided, if it replaces the C shim
    Operator op;
    std::unique_ptr<DeviceLaunch> device;
};

struct Steps {
    std::vector<Step> steps;
    std::vector<int32_t> outputs;
    std::vector<std::pair<int32_t, PyObject *>> constants;
    Numbers numbers;
    // arguments of a call: tensors, then Python numbers
    int32_t n_inputs = 0, n_numbers = 0, n_slots = 0;
    int64_t arena_bytes = 0, static_bytes = 0;
    int32_t arena_register = -1;  // register of the arena's size, if that is symbolic
    int32_t runs = 0;             // running calls (guarded by the GIL)
    // Only running calls use them: the last one frees them.
    bool left = false;
    bool calls_aten = false;
    bool captured = false;            // a CUDA graph may contain its kernels
    int32_t first_write = INT32_MAX;  // the first step that may write to an input or a constant
    const char *label = nullptr;      // of the whole program
    PyObject *labels = nullptr;       // owns the strings of all labels
    ProgramClock clock;

    ~Steps();
};

// Reads the tuple that `runtime.executor.lower` makes; false with a Python error set.
bool steps_read(PyObject *lowered, Steps &out);

// Read the slots of a step, and those that a kernel writes to; false with a Python error set.
bool steps_read_slots(PyObject *tuple, const Steps &steps, std::vector<int32_t> &out);
bool steps_read_writes(PyObject *tuple, const Steps &steps, Step &step);

// Frees them, at once or after the last running call.
void steps_free(Steps *steps);

// Both with a Python error set. Begun: inputs may have been written to.
constexpr int RUN_FAILED = -1, RUN_BEGUN = -2;

// Returns 0, RUN_FAILED or RUN_BEGUN. `owned`: the inputs again, if the run should drop each after
// its last use.
int steps_run(Steps &steps, PyObject *const *inputs, PyObject **outputs,
              PyObject **owned = nullptr);
