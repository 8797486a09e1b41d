#include "guards/value.h"

#include "frame/hook.h"
#include "executor/program.h"
#include "tensors/tensor.h"

struct ValueRecord {
    PyObject *program;  // a `_native.Program`, or a function f(*values) -> (tensor,)
    PyObject *outcome;
    bool truth;
    std::vector<int> registers;
};

namespace {

// torch's own `Tensor.item`, even if the program has replaced it.
PyObject *item_of(PyObject *tensor) {
    static PyObject *item = nullptr;
    if (item == nullptr) {
        Ref module(PyImport_ImportModule("torch._C"));
        Ref base(module ? PyObject_GetAttrString(module.get(), "TensorBase") : nullptr);
        item = base ? PyObject_GetAttrString(base.get(), "item") : nullptr;
        if (item == nullptr) return nullptr;
    }
    return PyObject_CallOneArg(item, tensor);
}

PyObject *result_of(PyObject *program, const std::vector<PyObject *> &inputs) {
    if (program_check(program)) {
        PyObject *output = nullptr;
        return program_run(program, inputs.data(), (Py_ssize_t)inputs.size(), &output) < 0 ? nullptr
                                                                                           : output;
    }
    Ref outputs(PyObject_Vectorcall(program, inputs.data(), inputs.size(), nullptr));
    if (!outputs) return nullptr;
    if (PyTuple_Check(outputs.get()) && PyTuple_GET_SIZE(outputs.get()) == 1)
        return Py_NewRef(PyTuple_GET_ITEM(outputs.get(), 0));
    PyErr_SetString(PyExc_TypeError, "a value program returned no tuple of one");
    return nullptr;
}

// The resulting Python number, as a new reference; null, without an exception, if the program
// raises.
PyObject *compute(PyObject *program, const std::vector<PyObject *> &inputs) {
    LookupScope off(Lookup::off);
    Ref result(result_of(program, inputs));
    PyObject *number = result ? item_of(result.get()) : nullptr;
    if (number == nullptr) PyErr_Clear();
    return number;
}

}  // namespace

ValueRecord *value_record_new(PyObject *expected, int n_registers) {
    PyObject *program, *registers, *outcome;
    int truth;
    if (!PyTuple_Check(expected)) {
        PyErr_SetString(
            PyExc_TypeError,
            "guard program: a 'value' row expects (program, registers, truth, outcome)");
        return nullptr;
    }
    if (!PyArg_ParseTuple(expected, "OO!pO", &program, &PyTuple_Type, &registers, &truth, &outcome))
        return nullptr;
    std::vector<int> found;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(registers); i++) {
        long number = PyLong_AsLong(PyTuple_GET_ITEM(registers, i));
        if (number == -1 && PyErr_Occurred()) return nullptr;
        if (number < 0 || number >= n_registers) {
            PyErr_SetString(PyExc_ValueError, "guard program: a value program names no register");
            return nullptr;
        }
        found.push_back((int)number);
    }
    if (!PyCallable_Check(program) ||
        (program_check(program) && (program_n_inputs(program) != (Py_ssize_t)found.size() ||
                                    program_n_outputs(program) != 1))) {
        PyErr_SetString(PyExc_TypeError,
                        "guard program: a value program of these inputs and one output expected");
        return nullptr;
    }
    return new ValueRecord{program, outcome, (bool)truth, std::move(found)};
}

void value_record_free(ValueRecord *record) { delete record; }

const std::vector<int> &value_registers(const ValueRecord *record) { return record->registers; }

bool value_record_holds(const ValueRecord *record, const Run &run) {
    std::vector<PyObject *> inputs;
    for (int reg : record->registers) inputs.push_back(run.registers[reg]);
    ValueMemo *memo = run.view.values.get();
    if (memo == nullptr) run.view.values.reset(memo = new ValueMemo());
    PyObject *found = nullptr;
    bool known = false;
    for (const auto &one : memo->known) {
        if (one.program.get() != record->program || one.inputs != inputs) continue;
        found = one.number.get();
        known = true;
        break;
    }
    if (!known) {
        std::vector<Ref> held;
        for (PyObject *one : inputs) held.emplace_back(Py_NewRef(one));
        found = compute(record->program, inputs);
        memo->known.push_back(
            {Ref(Py_NewRef(record->program)), std::move(inputs), std::move(held), Ref(found)});
    }
    if (found == nullptr) return false;
    if (!record->truth) return same_constant(found, record->outcome);
    int truth = PyObject_IsTrue(found);
    if (truth < 0) PyErr_Clear();
    return truth >= 0 && (truth ? Py_True : Py_False) == record->outcome;
}

int values_run(const GuardProgram *program, const Armed *armed, Run &run) {
    const std::vector<Instruction> &code = *program->code;
    // A program may run Python code of torch.
    std::vector<Ref> held;
    for (int index : program->heap->values)
        for (int reg : value_registers((const ValueRecord *)code[index].record)) {
            if (armed != nullptr && armed->registers[reg] != nullptr)
                run.registers[reg] = armed->registers[reg];
            held.emplace_back(Py_NewRef(run.registers[reg]));
        }
    for (int index : program->heap->values)
        if (!value_record_holds((const ValueRecord *)code[index].record, run))
            return code[index].row;
    return -1;
}
