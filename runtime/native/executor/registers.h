// The numbers of a symbolic program: sizes of its inputs, number arguments, and values computed
// from these.
//
// runtime/program/registers.py assigns the expressions of a program to 64-bit registers (an int64,
// or the bits of a double). They are filled at the beginning of each run: first constants, then
// reads of the inputs, then one operation after the other. Steps refer to registers where a static
// program has numbers.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <vector>

enum class NumberSource : uint8_t { size, stride, offset, integer, real };

struct NumberRead {
    int32_t target, input, dim;
    NumberSource source;
};

struct NumberOp {
    int32_t target, left, right;
    uint8_t code;
};

struct Numbers {
    std::vector<int64_t> registers;  // initial values, with constants filled in
    std::vector<NumberRead> reads;
    std::vector<NumberOp> code;

    bool empty() const { return registers.empty(); }
};

// Reads the tuple that `runtime.program.registers` makes; false with a Python error set.
bool numbers_read(PyObject *lowered, int32_t n_inputs, int32_t n_numbers, Numbers &out);

// Fills the registers from a call's inputs. Returns 0, or -1 with a Python error set. Needs the
// GIL.
int numbers_fill(const Numbers &numbers, PyObject *const *inputs, int64_t *registers);

inline double as_double(int64_t bits) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline int64_t as_bits(double value) {
    int64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
