#include "frame/hook.h"

#include "frame/bind_arguments.h"
#include "frame/tail_call.h"
#include "tensors/tensor.h"

// The evaluator is installed while a thread is inside an extent, or permanently in GRAPH_MODE. It
// chains to the evaluator that was there before, and restores that one. It passes on everything
// except fresh, unobserved function frames of a thread that looks up frames.

namespace {

long users = 0;  // running extents, over all threads (guarded by the GIL)
_PyFrameEvalFunction older = nullptr;  // the evaluator that ours chains to

PyCodeObject *exit_code = nullptr;  // a code object with a RETURN_VALUE, for finish_frame
int exit_index = 0;

// --- one frame -----------------------------------------------------------------------------------

// Passes a frame to the older evaluator. If that one calls ours again with the same frame, the
// interpreter runs it.
PyObject *pass_on(PyThreadState *thread, Frame *frame, int throwflag) {
    if (older == nullptr || older == _PyEval_EvalFrameDefault || this_thread.passing == frame)
        return _PyEval_EvalFrameDefault(thread, frame, throwflag);
    const void *before = this_thread.passing;
    this_thread.passing = frame;
    PyObject *result = older(thread, frame, throwflag);
    this_thread.passing = before;
    return result;
}

// Asks the policy once for each code object. Null without an exception: skip. None skips the frame,
// False also the frames below it. True skips it only this time, and the policy is asked again.
CodeState *ask_policy(PyObject *code, PyObject *globals, Skip *skip) {
    if (callbacks.policy == nullptr) return nullptr;
    Ref policy(Py_NewRef(callbacks.policy));
    LookupScope off(Lookup::off);
    PyObject *arguments[] = {code, globals};
    Ref state(PyObject_Vectorcall(policy.get(), arguments, 2, nullptr));
    if (!state) return nullptr;
    if (state.get() == Py_None || state.get() == Py_False) {
        *skip = state.get() == Py_False ? Skip::below : Skip::frame;
        if (policy_remember_skip(code, *skip) < 0) PyErr_Clear();
        return nullptr;
    }
    if (state.get() == Py_True) return nullptr;
    if (!PyObject_TypeCheck(state.get(), state_type)) {
        PyErr_SetString(PyExc_TypeError, "policy: a CodeState or None expected, or False");
        return nullptr;
    }
    // A state of another code object means that the policy's data is outdated; the frame runs
    // unchanged.
    if (((CodeState *)state.get())->code != code) return nullptr;
    if (state_adopt(code, (CodeState *)state.get()) < 0) return nullptr;
    return (CodeState *)state.get();  // the code object keeps it
}

CodeState *state_for_frame(PyObject *code, PyObject *globals, Skip *skip) {
    CodeState *state = policy_cached(code, skip);
    return state != nullptr || *skip != Skip::no ? state : ask_policy(code, globals, skip);
}

// Under hooks for saved tensors the frames of an extent run as written: a checkpoint runs its
// function again outside of the extent, and must save as many tensors then. Hooks around the
// extent's callable are no such case: the callable itself runs again.
bool may_save() {
    const void *hooks = saving_hooks();
    return hooks == nullptr || hooks == this_thread.saving;
}

bool may_replace(PyThreadState *thread, Frame *frame, PyCodeObject *code) {
    constexpr int NEEDED = CO_OPTIMIZED | CO_NEWLOCALS;
    constexpr int REFUSED =
        CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;
    return (code->co_flags & NEEDED) == NEEDED && (code->co_flags & REFUSED) == 0 &&
           frame_is_fresh(frame) && !frame_is_watched(thread, code) && may_save();
}

// Answers the frame; `outcome.plain` if it must run unchanged. The frame keeps its arguments alive,
// and `state` the state that `sample` times.
Outcome answer_frame(Frame *frame, PyCodeObject *code, Ref &state, CallSample &sample, Skip *skip) {
    CodeState *found = state_for_frame((PyObject *)code, frame->f_globals, skip);
    if (found == nullptr) return {nullptr, PyErr_Occurred() == nullptr};
    if (found->disabled) return {nullptr, true};
    state = Ref(Py_NewRef((PyObject *)found));
    sample.begin(found->clock);
    View view{frame->localsplus, n_parameters(code), frame->f_globals, frame->f_builtins,
              frame_function(frame)->func_closure};
    return answer((CodeState *)state.get(), view, nullptr);
}

void give();

PyObject *evaluate(PyThreadState *thread, Frame *frame, int throwflag) {
    if (this_thread.giving != nullptr && this_thread.giving->armed) give();
    if (throwflag || !lookup_is_on() || this_thread.passing == frame)
        return pass_on(thread, frame, throwflag);
    PyCodeObject *code = frame_code(frame);
    PyObject *skip = std::exchange(this_thread.skip, nullptr);
    if (skip == (PyObject *)code || !may_replace(thread, frame, code))
        return pass_on(thread, frame, throwflag);
    Ref state;  // dies after the sample
    CallSample sample;
    Skip left = Skip::no;
    Outcome outcome = answer_frame(frame, code, state, sample, &left);
    if (left == Skip::below) {
        LookupScope off(Lookup::off);
        return pass_on(thread, frame, throwflag);
    }
    if (outcome.plain) {
        CallSample plain;
        if (state && !outcome.trial) plain.begin_plain(((CodeState *)state.get())->clock);
        LookupScope scope(outcome.alone ? Lookup::off : this_thread.lookup);
        PyObject *result = pass_on(thread, frame, throwflag);
        if (outcome.trial) return ended((CodeState *)state.get(), outcome, result);
        return sample.done(plain.done(result));
    }
    PyObject *result = ended((CodeState *)state.get(), outcome, run_tails(outcome.result));
    return finish_frame(thread, frame, sample.done(result), exit_code, exit_index);
}

// --- installing ----------------------------------------------------------------------------------

_PyFrameEvalFunction evaluator_now() {
    return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
}

void set_evaluator(_PyFrameEvalFunction evaluator) {
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), evaluator);
}

// If another evaluator was installed above ours and chains to it, it becomes the older one;
// `pass_on` breaks the cycle.
void acquire() {
    users++;
    if (evaluator_now() == evaluate) return;
    older = evaluator_now();
    set_evaluator(evaluate);
}

// If another evaluator was installed above ours meanwhile, ours stays below it and passes
// everything on.
void release() {
    if (--users > 0 || evaluator_now() != evaluate) return;
    set_evaluator(older);
}

// Drops the references of a pending call to its arguments; the fresh frame has its own.
void give() {
    Giving *giving = std::exchange(this_thread.giving, nullptr);
    giving->armed = false;
    release();
    for (Py_ssize_t i = 0; i < giving->n; i++) Py_CLEAR(giving->values[i]);
}

// --- module functions ----------------------------------------------------------------------------

PyObject *call_in_extent(PyObject *, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    if (n < 1) {
        PyErr_SetString(PyExc_TypeError, "call_in_extent(callable, *args, **kwargs)");
        return nullptr;
    }
    Extent extent(this_thread.config);
    // args[0] is the callable. The callee may use its slot, as PY_VECTORCALL_ARGUMENTS_OFFSET
    // allows.
    return PyObject_Vectorcall(args[0], args + 1, (size_t)(n - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET,
                               kwnames);
}

PyObject *hook_always(PyObject *, PyObject *flag) {
    int on = PyObject_IsTrue(flag);
    if (on < 0) return nullptr;
    if (on && !lookup_always) acquire();
    if (!on && lookup_always) release();
    lookup_always = on;
    Py_RETURN_NONE;
}

PyObject *hook_status(PyObject *, PyObject *) {
    return Py_BuildValue("{s:O,s:l,s:O}", "installed",
                         evaluator_now() == evaluate ? Py_True : Py_False, "extents", users,
                         "lookup", lookup_is_on() ? Py_True : Py_False);
}

PyMethodDef module_methods[] = {
    {"call_in_extent", (PyCFunction)(void (*)(void))call_in_extent, METH_FASTCALL | METH_KEYWORDS,
     "call_in_extent(callable, *args, **kwargs): call it with the frames inside looked up"},
    {"hook_always", hook_always, METH_O,
     "hook_always(flag): look up every frame of every thread (GRAPH_MODE)"},
    {"hook_status", hook_status, METH_NOARGS,
     "what the frame hook is doing, for reports and tests"},
    {nullptr, nullptr, 0, nullptr}};

// Finds a RETURN_VALUE, which ends frames that were answered without running.
int find_exit() {
    Ref globals(PyDict_New());
    if (!globals) return -1;
    Ref done(PyRun_String("def answered(result): return result\n", Py_file_input, globals.get(),
                          globals.get()));
    PyObject *function = done ? PyDict_GetItemString(globals.get(), "answered") : nullptr;
    if (function == nullptr) return -1;
    exit_code = (PyCodeObject *)Py_NewRef(PyFunction_GET_CODE(function));
    Ref bytes(PyCode_GetCode(exit_code));
    if (!bytes) return -1;
    for (Py_ssize_t i = 0; i < PyBytes_GET_SIZE(bytes.get()); i += 2)
        if ((unsigned char)PyBytes_AS_STRING(bytes.get())[i] == RETURN_VALUE)
            exit_index = (int)(i / 2);
    if (exit_index > 0) return 0;
    PyErr_SetString(PyExc_ImportError, "graftjit: no RETURN_VALUE in a plain function");
    return -1;
}

}  // namespace

bool hook_is_on_top() { return evaluator_now() == evaluate; }

void hook_put_on_top() {
    if (users == 0 || evaluator_now() == evaluate) return;
    older = evaluator_now();
    set_evaluator(evaluate);
}

PyObject *call_frame(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Giving *giving = this_thread.giving;
    if (giving == nullptr || giving->values + 1 != args)
        return PyObject_Vectorcall(function, args, nargsf, kwnames);
    giving->armed = true;
    // In the evaluator, the frame exists and has not started.
    acquire();
    PyObject *result = PyObject_Vectorcall(function, args, nargsf, kwnames);
    if (std::exchange(giving->armed, false)) release();  // no frame was created
    return result;
}

Extent::Extent(unsigned config) : scope(Lookup::on), config(config) { acquire(); }
Extent::~Extent() { release(); }

int hook_init(PyObject *module) {
    if (find_exit() < 0) return -1;
    return PyModule_AddFunctions(module, module_methods);
}
