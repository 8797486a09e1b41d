#include "executor/steps.h"

#include <cstring>
#include <memory>

#include "executor/autograd_scope.h"
#include "executor/autocast_cache.h"
#include "executor/profiler_ranges.h"
#include "executor/thread_limit.h"
#include "executor/workspace.h"

namespace {

constexpr int32_t CPU = 0;  // the number of its device type
// From this size on the GIL is released during kernels.
constexpr int64_t RELEASE_BYTES = 1 << 20;

// The tensor of a slot during one run.
struct Slot {
    Handle handle;  // null: none
    PyObject *object;  // the Python tensor that the handle points into, or null
    void *memory;  // scratch memory
    bool owns_handle, owns_object;
};

using Kernel = void (*)(void **buffers, int32_t threads, const int64_t *numbers);

class Run {
  public:
    Run(Steps &steps, PyObject *const *inputs, PyObject **owned)
        : steps_(steps), inputs_(inputs), owned_(owned) {
        slots_ =
            steps.n_slots <= SMALL ? small_ : (many_.reset(new Slot[steps.n_slots]), many_.get());
        handles_ = steps.n_slots <= SMALL
                       ? small_handles_
                       : (many_handles_.reset(new Handle[steps.n_slots]), many_handles_.get());
        std::memset(slots_, 0, sizeof(Slot) * steps.n_slots);
        std::memset(handles_, 0, sizeof(Handle) * steps.n_slots);
    }

    // `marks`: receives the start of each step and the end of the last one, unless null. `ranges`:
    // a profiler needs ranges.
    int run(PyObject **outputs, uint64_t *marks, bool ranges = false) {
        if (!steps_.numbers.empty() && fill_numbers() != 0) return -1;
        start();
        int failed = ranges ? run_in_ranges() : marks == nullptr ? run_steps() : run_steps(marks);
        hold_gil();
        if (warnings_.leave() != 0) failed = -1;
        if (!failed) failed = collect(outputs);
        finish();
        return failed && began_ && steps_.first_write != INT32_MAX ? RUN_BEGUN : failed;
    }

  private:
    static constexpr int SMALL = 64;
    Steps &steps_;
    PyObject *const *inputs_;
    PyObject **owned_;  // the same inputs, if the run may drop them; else null
    ThreadLimit threads_;
    AmbientOff ambient_;
    DeviceRun devices_;
    Warnings warnings_;
    Slot small_[SMALL], *slots_;
    Handle small_handles_[SMALL], *handles_;
    std::unique_ptr<Slot[]> many_;
    std::unique_ptr<Handle[]> many_handles_;
    int64_t small_numbers_[SMALL], *numbers_ = nullptr;
    std::unique_ptr<int64_t[]> many_numbers_;
    void *arena_ = nullptr;
    PyThreadState *released_ = nullptr;
    bool releases_ = false;
    bool began_ = true;  // in a failed run: a step that writes to inputs has run
    // A kernel sets it on an error. Then the `otherwise` step after it runs, which raises.
    int32_t trouble_ = 0;

    int run_steps() {
        for (const Step &step : steps_.steps)
            if (int failed = run_step(step); failed != 0) return stopped(step);
        return 0;
    }

    // Notes that a step has failed.
    int stopped(const Step &step) {
        began_ = &step - steps_.steps.data() >= steps_.first_write;
        return RUN_FAILED;
    }

    int run_steps(uint64_t *marks) {
        *marks = clock_now();
        for (const Step &step : steps_.steps) {
            if (int failed = run_step(step); failed != 0) return stopped(step);
            *++marks = clock_now();
        }
        return 0;
    }

    int run_in_ranges() {
        for (const Step &step : steps_.steps) {
            Range range(step.label);
            if (int failed = run_step(step); failed != 0) return stopped(step);
        }
        return 0;
    }

    int fill_numbers() {
        size_t n = steps_.numbers.registers.size();
        numbers_ = n <= SMALL ? small_numbers_
                              : (many_numbers_.reset(new int64_t[n]), many_numbers_.get());
        return numbers_fill(steps_.numbers, inputs_, numbers_);
    }

    // The numbers of a step, read from registers if it is symbolic.
    const int64_t *values(const Step &step, const std::vector<int64_t> &given,
                          int64_t *buffer) const {
        if (!step.symbolic) return given.data();
        for (size_t i = 0; i < given.size(); i++) buffer[i] = numbers_[given[i]];
        return buffer;
    }

    void start() {
        int64_t largest = 0;
        for (int i = 0; i < steps_.n_inputs; i++) {
            borrow(i, inputs_[i]);
            int64_t numel = 0;
            torch_api.get_numel(handles_[i], &numel);
            if (numel > largest) largest = numel;
        }
        for (auto &[slot, object] : steps_.constants) borrow(slot, object);
        releases_ = steps_.static_bytes > RELEASE_BYTES || largest * 4 > RELEASE_BYTES;
        if (!steps_.calls_aten) return;
        ambient_.enter(wants_grad());
        warnings_.enter();
    }

    bool wants_grad() const {
        if (torch_api.requires_grad == nullptr) return false;
        for (int i = 0; i < steps_.n_inputs; i++)
            if (torch_api.requires_grad(impl_of(handle_of(inputs_[i])))) return true;
        for (auto &[slot, object] : steps_.constants)
            if (torch_api.requires_grad(impl_of(handle_of(object)))) return true;
        return false;
    }

    void borrow(int32_t slot, PyObject *object) {
        slots_[slot].object = object;
        set(slot, handle_of(object));
    }

    void set(int32_t slot, Handle handle) { slots_[slot].handle = handles_[slot] = handle; }

    void hold_gil() {
        if (released_ == nullptr) return;
        PyEval_RestoreThread(released_);
        released_ = nullptr;
    }

    void drop_gil() {
        if (releases_ && released_ == nullptr) released_ = PyEval_SaveThread();
    }

    void clear(int32_t index) {
        Slot &slot = slots_[index];
        if (slot.owns_object) hold_gil();
        if (slot.owns_handle) torch_api.delete_tensor(slot.handle);
        if (slot.owns_object) Py_DECREF(slot.object);
        slot = {};
        handles_[index] = nullptr;
        if (owned_ == nullptr || index >= steps_.n_inputs || owned_[index] == nullptr) return;
        hold_gil();
        Py_CLEAR(owned_[index]);
    }

    int run_step(const Step &step) {
        switch (step.kind) {
            case StepKind::alloc: return alloc(step);
            case StepKind::scratch: return scratch(step);
            case StepKind::launch: return launch(step);
            case StepKind::device: return device(step);
            case StepKind::otherwise: return trouble_ ? python(step) : 0;
            case StepKind::view: return view(step);
            case StepKind::aten: return step.followed ? followed(step) : aten(step);
            case StepKind::cast: return cast(step);
            case StepKind::check: return check(step);
            case StepKind::python: return step.followed ? followed(step) : python(step);
            case StepKind::free:
                for (int32_t slot : step.slots) clear(slot);
                return 0;
        }
        return 0;
    }

    // Sets a slot to a new tensor cell.
    void own(int32_t slot, Handle handle) {
        clear(slot);
        slots_[slot].owns_handle = true;
        set(slot, handle);
    }

    // The C shim reports only that it failed. The Python form raises torch's own error, or
    // succeeds.
    int failed_in_shim(const char *what) {
        hold_gil();
        return PyErr_Format(PyExc_RuntimeError, "graftjit: %s failed", what), -1;
    }

    int failed(const std::exception_ptr &error) {
        hold_gil();
        if (torch_api.translate_exception != nullptr) torch_api.translate_exception(error);
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "graftjit: an operator failed");
        return -1;
    }

    // Allocates by an operator, which raises torch's own exception.
    int alloc_by_operator(const Step &step) {
        Handle handle = nullptr;
        try {
            operator_call(step.op, handles_, numbers_, &handle);
        } catch (...) {
            return torch_api.translate_exception == nullptr ? python(step)
                                                            : failed(std::current_exception());
        }
        own(step.slot, handle);
        return 0;
    }

    int alloc(const Step &step) {
        if (step.op.function != nullptr) return alloc_by_operator(step);
        Handle handle;
        int64_t sizes[MAX_RANK], strides[MAX_RANK];
        if (torch_api.empty_strided(step.sizes.size(), values(step, step.sizes, sizes),
                                    values(step, step.strides, strides), step.dtype,
                                    step.device_type, step.device_index, &handle))
            return step.callable ? python(step) : failed_in_shim("allocating a tensor");
        own(step.slot, handle);
        return 0;
    }

    int take_arena() {
        arena_ = workspace_take(steps_.arena_register < 0 ? steps_.arena_bytes
                                                          : numbers_[steps_.arena_register]);
        if (arena_ != nullptr) return 0;
        hold_gil();
        return PyErr_NoMemory(), -1;
    }

    int scratch(const Step &step) {
        if (step.base >= 0) return scratch_of_tensor(step);
        if (arena_ == nullptr && take_arena() != 0) return -1;
        slots_[step.slot].memory =
            (char *)arena_ + (step.symbolic ? numbers_[step.offset] : step.offset);
        return 0;
    }

    int scratch_of_tensor(const Step &step) {
        void *start;
        if (!address(step.base, &start)) return failed_in_shim("reading a tensor's address");
        slots_[step.slot].memory =
            (char *)start + (step.symbolic ? numbers_[step.offset] : step.offset);
        return 0;
    }

    // The address of a slot's memory.
    bool address(int32_t index, void **out) const {
        const Slot &slot = slots_[index];
        if (slot.memory != nullptr) return *out = slot.memory, true;
        return slot.handle != nullptr && !torch_api.get_data_ptr(slot.handle, out);
    }

    // Increments versions after the kernel has run, as operators do. An inference tensor, which
    // must not be written to, raises here.
    int bump_versions(const Step &step) {
        try {
            for (int32_t slot : step.writes) {
                if (handles_[slot] == nullptr) return failed_in_shim("reading a slot");
                torch_api.bump_version(handles_[slot]);
            }
            return 0;
        } catch (...) {
            return failed(std::current_exception());
        }
    }

    int launch(const Step &step) {
        size_t n = step.slots.size();
        void *few[33], **buffers = few;
        std::unique_ptr<void *[]> many;
        if (n > 32) many.reset(new void *[n + 1]), buffers = many.get();
        buffers[n] = &trouble_;
        for (size_t i = 0; i < n; i++)
            if (!address(step.slots[i], &buffers[i]))
                return failed_in_shim("reading a tensor's address");
        int64_t few_numbers[SMALL];
        std::unique_ptr<int64_t[]> many_numbers;
        int64_t *numbers = few_numbers;
        if (step.numbers.size() > SMALL)
            many_numbers.reset(numbers = new int64_t[step.numbers.size()]);
        for (size_t i = 0; i < step.numbers.size(); i++) numbers[i] = numbers_[step.numbers[i]];
        drop_gil();
        ((Kernel)step.kernel)(buffers, torch_api.get_num_threads(), numbers);
        return step.writes.empty() ? 0 : bump_versions(step);
    }

    int device(const Step &step) {
        DeviceLaunch &kernel = *step.device;
        size_t n = step.slots.size();
        uint64_t values[MAX_PARAMETERS];
        for (size_t i = 0; i < n; i++)
            if (!address(step.slots[i], (void **)&values[i]))
                return failed_in_shim("reading a tensor's address");
        int64_t programs = kernel.grid(numbers_);
        if (programs < 0 || !kernel.fill(numbers_, values, n))
            return hold_gil(), kernel.refused(numbers_);
        if (programs > 0) {
            bool any = kernel.misaligned(values);
            if (any && kernel.general_function == nullptr &&
                (leave_device() != 0 || (hold_gil(), kernel.make_general()) != 0))
                return -1;
            void *stream;
            bool captured;
            int code = devices_.enter(kernel.device, &stream, &captured);
            if (captured && !steps_.captured && (hold_gil(), device_launches_captured(steps_)) != 0)
                return -1;
            drop_gil();
            if (code == CUDA_SUCCESS)
                code = kernel.launch(stream, programs, values, kernel.parameters(n), any);
            if (code != CUDA_SUCCESS) return hold_gil(), kernel.failed(code);
        }
        return step.writes.empty() ? 0 : bump_versions(step);
    }

    // Later steps may read or change torch's current device.
    int leave_device() {
        int code = devices_.leave();
        return code == CUDA_SUCCESS
                   ? 0
                   : (hold_gil(), cuda_failed(code, "returning to the device that was current"));
    }

    int view(const Step &step) {
        Handle base = handles_[step.base], handle;
        int64_t offset = step.symbolic ? numbers_[step.offset] : step.offset, start = 0;
        int64_t sizes[MAX_RANK], strides[MAX_RANK];
        if (base == nullptr) return failed_in_shim("reading a slot");
        if (step.absolute) {
            if (torch_api.get_storage_offset(base, &start))
                return failed_in_shim("reading an offset");
            offset -= start;
        }
        if (torch_api.reinterpret(base, step.sizes.size(), values(step, step.sizes, sizes),
                                  values(step, step.strides, strides), offset, &handle))
            return failed_in_shim("making a view");
        own(step.slot, handle);
        return 0;
    }

    int aten(const Step &step) {
        Handle results[8] = {};
        if (leave_device() != 0) return -1;
        drop_gil();
        try {
            operator_call(step.op, handles_, numbers_, results);
        } catch (...) {
            hold_gil();
            return torch_api.translate_exception == nullptr ? python(step)
                                                            : failed(std::current_exception());
        }
        int n = step.op.n_results;
        for (int i = 0; i < n; i++) {
            int32_t slot = i < (int)step.results.size() ? step.results[i] : -1;
            if (results[i] == nullptr) continue;
            // An undefined tensor (a gradient that is not needed) is a null result in Python, too.
            if (slot < 0)
                torch_api.delete_tensor(results[i]);
            else
                own(slot, results[i]);
        }
        return 0;
    }

    int followed(const Step &step) {
        Handle base = handles_[step.slots[0]];
        bool on = ambient_.was_grad() && base != nullptr && !torch_api.requires_grad(impl_of(base));
        if (on) AmbientOff::set_grad(true);
        int failed = step.kind == StepKind::aten ? aten(step) : python(step);
        if (on) AmbientOff::set_grad(false);
        return failed;
    }

    int cast(const Step &step) {
        Handle handle;
        if (leave_device() != 0) return -1;
        drop_gil();
        try {
            if (!cached_cast(handles_[step.base], step.dtype, step.device_type, &handle))
                return python(step);
        } catch (...) {
            return failed(std::current_exception());
        }
        own(step.slot, handle);
        return 0;
    }

    // The Python form raises, and reads what is not in the processor's memory.
    int check(const Step &step) {
        int32_t device = -1;
        void *truth = nullptr;
        Handle condition = handles_[step.slots[0]];
        if (condition != nullptr && !torch_api.get_device_type(condition, &device) &&
            device == CPU && !torch_api.get_data_ptr(condition, &truth) &&
            truth != nullptr && *(const bool *)truth == step.expected)
            return 0;
        return python(step);
    }

    // The tensor of a slot as a Python object, borrowed from the slot.
    PyObject *object_of(int32_t index) {
        Slot &slot = slots_[index];
        if (slot.object == nullptr) {
            if (slot.handle == nullptr) {
                return PyErr_SetString(PyExc_SystemError, "graftjit: a step reads an empty slot"),
                       nullptr;
            }
            PyObject *object = torch_api.wrap(slot.handle);
            if (object == nullptr) return nullptr;
            slot.object = object;
            slot.owns_object = true;
        }
        return slot.object;
    }

    int python(const Step &step) {
        hold_gil();
        if (leave_device() != 0) return -1;
        std::vector<PyObject *> arguments;
        for (int32_t slot : step.slots) {
            PyObject *object = object_of(slot);
            if (object == nullptr) return -1;
            arguments.push_back(object);
        }
        int failed = 0;
        for (size_t i = 0; i < step.numbers.size() && !failed; i++) {
            int64_t bits = numbers_[step.numbers[i]];
            PyObject *made =
                step.reals[i] ? PyFloat_FromDouble(as_double(bits)) : PyLong_FromLongLong(bits);
            failed = made == nullptr ? -1 : 0;
            if (!failed) arguments.push_back(made);
        }
        PyObject *got = failed ? nullptr
                               : PyObject_Vectorcall(step.callable, arguments.data(),
                                                     arguments.size(), nullptr);
        for (size_t i = step.slots.size(); i < arguments.size(); i++) Py_DECREF(arguments[i]);
        if (got == nullptr) return -1;
        failed = take_results(step, got);
        Py_DECREF(got);
        return failed;
    }

    int take_results(const Step &step, PyObject *got) {
        Py_ssize_t n = (Py_ssize_t)step.results.size();
        if (!PyTuple_Check(got) || PyTuple_GET_SIZE(got) < n) {
            return PyErr_SetString(PyExc_SystemError,
                                   "graftjit: a Python step gave fewer results than were planned"),
                   -1;
        }
        for (Py_ssize_t i = 0; i < n; i++) {
            int32_t slot = step.results[i];
            PyObject *object = PyTuple_GET_ITEM(got, i);
            if (slot < 0 || object == Py_None) continue;
            clear(slot);
            slots_[slot].object = Py_NewRef(object);
            slots_[slot].owns_object = true;
            set(slot, handle_of(object));
        }
        return 0;
    }

    int collect(PyObject **outputs) {
        for (size_t i = 0; i < steps_.outputs.size(); i++) {
            int32_t slot = steps_.outputs[i];
            PyObject *object = slots_[slot].object != nullptr ? Py_NewRef(slots_[slot].object)
                               : slots_[slot].handle != nullptr
                                   ? torch_api.wrap(slots_[slot].handle)
                                   : nullptr;
            if (object == nullptr) {
                if (!PyErr_Occurred())
                    PyErr_SetString(PyExc_SystemError, "graftjit: an output slot is empty");
                while (i-- > 0) Py_DECREF(outputs[i]);
                return -1;
            }
            outputs[i] = object;
        }
        return 0;
    }

    // Exceptions cannot skip this: kernels throw none, and those of operators are caught.
    void finish() {
        devices_.leave();  // a later call reports an error that matters
        for (int32_t slot = 0; slot < steps_.n_slots; slot++)
            if (slots_[slot].owns_handle || slots_[slot].owns_object) clear(slot);
        ambient_.leave();
        if (arena_ != nullptr) workspace_give_back(arena_);
    }
};

}  // namespace

void steps_free(Steps *steps) {
    if (steps == nullptr) return;
    if (steps->runs)
        steps->left = true;
    else
        delete steps;
}

// A timed run, for a sample of the program itself or of the call around it.
static int run_timed(Steps &steps, PyObject *const *inputs, PyObject **outputs, PyObject **owned,
                     bool due) {
    std::vector<uint64_t> marks(due ? steps.steps.size() + 1 : 0);
    uint64_t began = clock_now();
    watch_program_begins(began);
    int failed = Run(steps, inputs, owned).run(outputs, due ? marks.data() : nullptr);
    uint64_t ended = clock_now();
    watch_program_ends(began, ended);
    if (due && !failed) steps.clock.add(marks, began, ended);
    if (due) steps.clock.turn.plan();
    return failed;
}

// A run under a profiler. Its times are untypical and are not sampled.
static int run_in_ranges(Steps &steps, PyObject *const *inputs, PyObject **outputs,
                         PyObject **owned, bool due) {
    if (due) steps.clock.turn.plan();
    watches_spoil();
    Range range(steps.label);
    return Run(steps, inputs, owned).run(outputs, nullptr, true);
}

int steps_run(Steps &steps, PyObject *const *inputs, PyObject **outputs, PyObject **owned) {
    steps.runs++;
    bool due = steps.clock.turn.due();
    if (due && !sampling) steps.clock.turn.plan(), due = false;
    int failed = ranges_wanted()       ? run_in_ranges(steps, inputs, outputs, owned, due)
                 : due || watches.n > 0 ? run_timed(steps, inputs, outputs, owned, due)
                                        : Run(steps, inputs, owned).run(outputs, nullptr);
    if (--steps.runs == 0 && steps.left) delete &steps;
    return failed;
}
