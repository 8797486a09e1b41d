// Calling an ATen operator's C++ entry point, `at::_ops::NAME::call`, without torch headers.
//
// runtime/executor/aten_calls.py writes the mangled name from the operator's schema and lays the arguments out as words by
// the System V x86-64 calling convention; where a symbol, a type or the machine is another, there is no Operator and
// the step is a prepared Python call.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tensors/torch_api.h"

// Where a word of the call comes from.
enum class Word : uint8_t {
    constant,        // the number itself
    handle,          // Tensor const& or Tensor&: the handle of slot `value`
    blob,            // address of `value` in the constant bytes
    copied,          // address of a copy of 16 constant bytes at `value` (what a callee may move from)
    optional_tensor, // Tensor? const&: address of {tensor of slot `value`, true}
    list_data,       // address of the array of tensors of list `value`
    list_struct,     // address of an IListRef<Tensor> over list `value`
    number,          // register `value` of the run's numbers
};

struct OperatorWord {
    Word kind;
    int64_t value;
};

enum class Returns : uint8_t { nothing, reference, values };

struct Operator {
    void *function = nullptr;
    std::vector<OperatorWord> registers, stack; // integer words in order; `stack` beyond the sixth
    std::vector<double> doubles;
    std::vector<std::pair<int32_t, int32_t>> real_registers; // place in `doubles`, register that it comes from
    std::vector<char> bytes;                      // constants that words point to
    std::vector<std::pair<int32_t, int32_t>> patches; // place in `bytes`, register that is written there
    std::vector<std::vector<int32_t>> lists;      // slots of Tensor[] arguments
    Returns returns = Returns::values;
    int n_results = 0;
};

// From the tuple that runtime/executor/aten_calls.py makes; false with a Python error set.
bool operator_read(PyObject *plan, Operator &out);

// Whether every register that it names is there; a Python error is set if not.
bool operator_numbers_fit(const Operator &op, size_t n_registers);

// Calls it. `handles[slot]` are the tensors; results[i] are new cells to be freed by delete_tensor (for a
// reference: a new cell for the same tensor). `numbers`: the run's registers, null where it has none. Lets C++
// exceptions through.
void operator_call(const Operator &op, const Handle *handles, const int64_t *numbers, Handle *results);
