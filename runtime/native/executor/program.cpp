#include "executor/program.h"

#include <structmember.h>

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

#include "executor/steps.h"
#include "tensors/tensor.h"
#include "executor/workspace.h"

namespace {

struct Program {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *spec;
    Steps *steps;
    PyObject *weak_references;
    char tells_begun;
};

PyTypeObject *program_type = nullptr;

// After a failed run that may have written to inputs, replaces the exception by a `rollback.Begun`,
// if the program has `tells_begun`.
int report_begun(int failed, const Program *self) {
    if (failed != RUN_BEGUN || !self->tells_begun) return failed;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != nullptr) PyException_SetTraceback(error, traceback);
    PyObject *module = PyImport_ImportModule("graftjit.runtime.autograd.rollback");
    PyObject *begun =
        module == nullptr ? nullptr : PyObject_CallMethod(module, "Begun", "O", error);
    if (begun != nullptr) PyErr_SetObject((PyObject *)Py_TYPE(begun), begun);
    for (PyObject *one : {type, error, traceback, module, begun}) Py_XDECREF(one);
    return failed;
}

PyObject *run_to_tuple(const Program *self, Steps &steps, PyObject *const *inputs,
                       PyObject **owned = nullptr) {
    PyObject *result = PyTuple_New((Py_ssize_t)steps.outputs.size());
    if (result == nullptr) return nullptr;
    PyObject **items = ((PyTupleObject *)result)->ob_item;
    int failed = steps_run(steps, inputs, items, owned);
    if (failed == 0) return result;
    // A failed run holds no references to the items that it wrote.
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result); i++) items[i] = nullptr;
    Py_DECREF(result);
    if (self != nullptr) report_begun(failed, self);
    return nullptr;
}

bool fits(const Steps &steps, PyObject *const *args, Py_ssize_t n) {
    if (n != steps.n_inputs + steps.n_numbers) {
        PyErr_Format(PyExc_TypeError, "a program of %d inputs was called with %zd",
                     steps.n_inputs + steps.n_numbers, n);
        return false;
    }
    for (Py_ssize_t i = 0; i < steps.n_inputs; i++)
        if (!tensor_is_tensor(args[i])) {
            PyErr_Format(PyExc_TypeError, "input %zd of a program is no tensor: %R", i,
                         Py_TYPE(args[i]));
            return false;
        }
    return true;
}

PyObject *call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
    Steps &steps = *((Program *)self)->steps;
    if (names != nullptr && PyTuple_GET_SIZE(names) > 0) {
        PyErr_SetString(PyExc_TypeError, "a program takes no keyword arguments");
        return nullptr;
    }
    return fits(steps, args, PyVectorcall_NARGS(nargsf))
               ? run_to_tuple((Program *)self, steps, args)
               : nullptr;
}

// consume(list): a call with the arguments in a list, which is emptied, so that tensors without
// other references die after their last use.
PyObject *consume(PyObject *self, PyObject *list) {
    Steps &steps = *((Program *)self)->steps;
    if (!PyList_CheckExact(list)) {
        PyErr_Format(PyExc_TypeError, "consume(list): a list expected, not %R", Py_TYPE(list));
        return nullptr;
    }
    Py_ssize_t n = PyList_GET_SIZE(list);
    if (!fits(steps, ((PyListObject *)list)->ob_item, n)) return nullptr;
    std::vector<PyObject *> owned((size_t)n);
    for (Py_ssize_t i = 0; i < n; i++) owned[i] = Py_NewRef(PyList_GET_ITEM(list, i));
    PyObject *result = PyList_SetSlice(list, 0, n, nullptr) < 0
                           ? nullptr
                           : run_to_tuple((Program *)self, steps, owned.data(), owned.data());
    for (PyObject *one : owned) Py_XDECREF(one);
    return result;
}

PyObject *lower(PyObject *spec) {
    PyObject *module = PyImport_ImportModule("graftjit.runtime.executor.lower");
    PyObject *lowered =
        module == nullptr ? nullptr : PyObject_CallMethod(module, "lower", "O", spec);
    Py_XDECREF(module);
    return lowered;
}

PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"spec", nullptr};
    PyObject *spec;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", (char **)names, &spec)) return nullptr;
    if (torch_api_ready() < 0) return nullptr;
    if (!torch_api.native_program) {
        PyErr_SetString(PyExc_RuntimeError,
                        "a native route to tensors is missing: see _native.tensor_routes()");
        return nullptr;
    }
    PyObject *lowered = lower(spec);
    if (lowered == nullptr) return nullptr;
    workspace_drop();
    auto *self = (Program *)type->tp_alloc(type, 0);
    if (self != nullptr) {
        self->vectorcall = call;
        self->spec = Py_NewRef(spec);
        self->steps = new (std::nothrow) Steps();
        if (self->steps == nullptr) PyErr_NoMemory();
        if (self->steps == nullptr || !steps_read(lowered, *self->steps)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "graftjit: a step cannot be read");
            Py_CLEAR(self);
        }
    }
    Py_DECREF(lowered);
    return (PyObject *)self;
}

// run_lowered(lowered, *tensors): one run of lowered steps, for self-tests.
PyObject *run_lowered(PyObject *, PyObject *const *args, Py_ssize_t n) {
    if (n < 1 || torch_api_ready() < 0) return nullptr;
    Steps steps;
    if (!steps_read(args[0], steps)) return nullptr;
    if (steps.n_inputs + steps.n_numbers != n - 1 || !torch_api.native_program) {
        PyErr_SetString(PyExc_ValueError, "graftjit: the steps cannot be run");
        return nullptr;
    }
    return run_to_tuple(nullptr, steps, args + 1);
}

int traverse(PyObject *object, visitproc visit, void *arg) {
    auto *self = (Program *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->spec);
    if (self->steps != nullptr) {
        for (Step &step : self->steps->steps) {
            Py_VISIT(step.callable);
            if (step.device != nullptr) Py_VISIT(step.device->keep);
        }
        for (auto &[slot, constant] : self->steps->constants) Py_VISIT(constant);
    }
    return 0;
}

// In a collected cycle only the spec is dropped. The steps stay, so that a call from a finaliser
// still works.
int clear(PyObject *object) {
    Py_CLEAR(((Program *)object)->spec);
    return 0;
}

void dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (((Program *)object)->weak_references != nullptr) PyObject_ClearWeakRefs(object);
    clear(object);
    steps_free(((Program *)object)->steps);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject *get_spec(PyObject *self, void *) { return Py_NewRef(((Program *)self)->spec); }

PyObject *get_n_inputs(PyObject *self, void *) {
    return PyLong_FromSsize_t(program_n_inputs(self));
}

PyObject *get_n_outputs(PyObject *self, void *) {
    return PyLong_FromSsize_t(program_n_outputs(self));
}

// The implementation of each step, in order: for reports and tests.
PyObject *get_routes(PyObject *self, void *) {
    static const char *const names[] = {"alloc", "scratch", "launch", "device", "otherwise", "view",
                                        "aten",  "cast",    "check",  "python", "free"};
    const auto &steps = ((Program *)self)->steps->steps;
    PyObject *result = PyTuple_New((Py_ssize_t)steps.size());
    for (size_t i = 0; result != nullptr && i < steps.size(); i++)
        PyTuple_SET_ITEM(result, (Py_ssize_t)i, PyUnicode_FromString(names[(int)steps[i].kind]));
    return result;
}

// times(): (calls, samples, seconds of a run, seconds of each step), as medians of the latest
// samples. The seconds of a GPU launch are 0, since the step does not wait for the kernel.
PyObject *times(PyObject *self, PyObject *) {
    const Steps &steps = *((Program *)self)->steps;
    PyObject *each = PyTuple_New((Py_ssize_t)steps.steps.size());
    if (each == nullptr) return nullptr;
    for (size_t i = 0; i < steps.steps.size(); i++) {
        bool waits = steps.steps[i].kind != StepKind::device;
        PyObject *seconds = PyFloat_FromDouble(waits ? steps.clock.step(i) : 0.0);
        if (seconds == nullptr) return Py_DECREF(each), nullptr;
        PyTuple_SET_ITEM(each, (Py_ssize_t)i, seconds);
    }
    const ProgramClock &clock = steps.clock;
    return Py_BuildValue("KIdN", (unsigned long long)clock.turn.calls, (unsigned)clock.whole.n,
                         (double)clock.whole.median(), each);
}

// become(other): exchanges what the two programs do, from their next call on. Running calls end as
// they began.
PyObject *become(PyObject *object, PyObject *other) {
    auto *self = (Program *)object, *next = (Program *)other;
    if (!Py_IS_TYPE(other, Py_TYPE(object))) {
        PyErr_Format(PyExc_TypeError, "become(other): a Program expected, not %R", Py_TYPE(other));
        return nullptr;
    }
    if (program_n_inputs(object) != program_n_inputs(other) ||
        program_n_outputs(object) != program_n_outputs(other) ||
        self->steps->n_inputs != next->steps->n_inputs) {
        PyErr_SetString(PyExc_ValueError, "become(other): a program of other inputs or outputs");
        return nullptr;
    }
    std::swap(self->steps, next->steps);
    std::swap(self->spec, next->spec);
    Py_RETURN_NONE;
}

PyMethodDef program_own_methods[] = {
    {"consume", consume, METH_O,
     "consume(list): a call whose arguments die after their last use; the list is emptied."},
    {"times", times, METH_NOARGS,
     "(calls, samples, seconds of a run, seconds of each step): medians of sampled runs."},
    {"become", become, METH_O,
     "become(other): exchange what the two programs do, from the next call on."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef getset[] = {
    {"spec", get_spec, nullptr, "The ProgramSpec.", nullptr},
    {"n_inputs", get_n_inputs, nullptr, nullptr, nullptr},
    {"n_outputs", get_n_outputs, nullptr, nullptr, nullptr},
    {"routes", get_routes, nullptr, "How each step is done, in order.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Program, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Program, weak_references), READONLY, nullptr},
    {"tells_begun", T_BOOL, offsetof(Program, tells_begun), 0,
     "raises `Begun` where it may have written to its inputs by then"},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, (void *)program_new},
    {Py_tp_dealloc, (void *)dealloc},
    {Py_tp_call, (void *)PyVectorcall_Call},
    {Py_tp_traverse, (void *)traverse},
    {Py_tp_clear, (void *)clear},
    {Py_tp_getset, getset},
    {Py_tp_methods, program_own_methods},
    {Py_tp_members, members},
    {Py_tp_doc, (void *)"A compiled program: called with tensors, it gives a tuple."},
    {0, nullptr},
};

PyType_Spec type_spec = {
    "graftjit.runtime._native.Program", sizeof(Program), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    slots};

}  // namespace

bool program_check(PyObject *object) { return Py_IS_TYPE(object, program_type); }

Py_ssize_t program_n_inputs(PyObject *program) {
    const Steps &steps = *((Program *)program)->steps;
    return steps.n_inputs + steps.n_numbers;
}

Py_ssize_t program_n_outputs(PyObject *program) {
    return (Py_ssize_t)((Program *)program)->steps->outputs.size();
}

int program_run(PyObject *program, PyObject *const *inputs, Py_ssize_t n, PyObject **outputs) {
    Steps &steps = *((Program *)program)->steps;
    if (n != steps.n_inputs + steps.n_numbers) {
        PyErr_Format(PyExc_TypeError, "a program of %d inputs was called with %zd",
                     steps.n_inputs + steps.n_numbers, n);
        return -1;
    }
    return report_begun(steps_run(steps, inputs, outputs), (Program *)program);
}

static PyObject *kept_workspace(PyObject *, PyObject *) {
    return PyLong_FromLongLong(workspace_kept());
}

static PyMethodDef program_methods[] = {
    {"kept_workspace", kept_workspace, METH_NOARGS,
     "Bytes that this thread keeps for the next run of a program."},
    {"run_lowered", (PyCFunction)(void (*)())run_lowered, METH_FASTCALL,
     "One run of lowered steps, for self-tests."},
    {nullptr, nullptr, 0, nullptr},
};

int program_init(PyObject *module) {
    if (PyModule_AddFunctions(module, program_methods) < 0) return -1;
    program_type = (PyTypeObject *)PyType_FromSpec(&type_spec);
    return program_type == nullptr
               ? -1
               : PyModule_AddObjectRef(module, "Program", (PyObject *)program_type);
}
