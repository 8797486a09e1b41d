// Calls the C++ entry point of an ATen operator, `at::_ops::NAME::call`, without torch headers.
//
// runtime/executor/aten_calls.py makes the mangled name from the operator's schema, and arranges
// the arguments as words by the System V x86-64 calling convention. If a symbol, a type or the
// machine is not supported, there is no Operator, and the step is a prepared Python call.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tensors/torch_api.h"

// The origin of a word of the call.
enum class Word : uint8_t {
    constant,  // the number itself
    handle,    // Tensor const& or Tensor&: the handle of slot `value`
    blob,      // address of `value` in the constant bytes
    // address of a copy of 16 constant bytes at `value` (an argument that the callee may move)
    copied,
    optional_tensor,  // Tensor? const&: address of {tensor of slot `value`, true}
    list_data,        // address of the array of tensors of list `value`
    list_struct,      // address of an IListRef<Tensor> over list `value`
    number,           // register `value` of the run's numbers
};

struct OperatorWord {
    Word kind;
    int64_t value;
};

enum class Returns : uint8_t { nothing, reference, values };

struct Operator {
    void *function = nullptr;
    std::vector<OperatorWord> registers, stack;  // integer words in order; `stack` after the sixth
    std::vector<double> doubles;
    // place in `doubles`, source register
    std::vector<std::pair<int32_t, int32_t>> real_registers;
    std::vector<char> bytes;  // constants that words point to
    // place in `bytes`, source register
    std::vector<std::pair<int32_t, int32_t>> patches;
    std::vector<std::vector<int32_t>> lists;  // slots of Tensor[] arguments
    Returns returns = Returns::values;
    int n_results = 0;
};

// Reads the tuple that runtime/executor/aten_calls.py makes; false with a Python error set.
bool operator_read(PyObject *plan, Operator &out);

// Whether the program has every register that the operator names; if not, a Python error is set.
bool operator_numbers_fit(const Operator &op, size_t n_registers);

// Calls the operator. `handles[slot]` are the tensors. results[i] are new cells, to be freed with
// delete_tensor (for a reference: a new cell for the same tensor). `numbers`: the registers of the
// run, or null. C++ exceptions propagate.
void operator_call(const Operator &op, const Handle *handles, const int64_t *numbers,
                   Handle *results);
