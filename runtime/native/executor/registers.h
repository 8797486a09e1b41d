// The numbers of a symbolic program: sizes read from its inputs, numbers given to it, and what follows from them.
//
// runtime/program/registers.py lays a program's expressions out over registers of 64 bits (an int64, or the bits of a double).
// They are filled at the beginning of each run: constants are there, then what is read from the inputs, then one
// operation after the other. Steps name registers where a static program has numbers.
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
    std::vector<int64_t> registers;  // as a run begins: the constants are there
    std::vector<NumberRead> reads;
    std::vector<NumberOp> code;

    bool empty() const { return registers.empty(); }
};

// From the tuple that `runtime.program.registers` makes; false with a Python error set.
bool numbers_read(PyObject *lowered, int32_t n_inputs, int32_t n_numbers, Numbers &out);

// Fills the registers from a call's inputs: 0, or -1 with a Python error set. Needs the GIL.
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
