#include "executor/registers.h"

#include <cmath>
#include <iterator>

#include "executor/python_float.h"
#include "tensors/torch_api.h"

namespace {

int division_by_zero() {
    PyErr_SetString(PyExc_ZeroDivisionError, "division by zero");
    return -1;
}

int too_large() {
    PyErr_SetString(PyExc_OverflowError,
                    "graftjit: a number of a compiled program is beyond 64 bits");
    return -1;
}

using Operation = int (*)(int64_t a, int64_t b, int64_t &out);

int add(int64_t a, int64_t b, int64_t &out) {
    return __builtin_add_overflow(a, b, &out) ? too_large() : 0;
}
int sub(int64_t a, int64_t b, int64_t &out) {
    return __builtin_sub_overflow(a, b, &out) ? too_large() : 0;
}
int mul(int64_t a, int64_t b, int64_t &out) {
    return __builtin_mul_overflow(a, b, &out) ? too_large() : 0;
}

// Rounds towards minus infinity, as in Python.
int floordiv(int64_t a, int64_t b, int64_t &out) {
    if (b == 0) return division_by_zero();
    if (b == -1) return sub(0, a, out);
    out = a / b - ((a % b != 0) && ((a ^ b) < 0));
    return 0;
}

int mod(int64_t a, int64_t b, int64_t &out) {
    if (b == 0) return division_by_zero();
    out = b == -1 ? 0 : a % b;
    if (out != 0 && ((out ^ b) < 0)) out += b;
    return 0;
}

int least(int64_t a, int64_t b, int64_t &out) { return out = b < a ? b : a, 0; }
int most(int64_t a, int64_t b, int64_t &out) { return out = b > a ? b : a, 0; }
int absolute(int64_t a, int64_t, int64_t &out) { return a < 0 ? sub(0, a, out) : (out = a, 0); }

int real(double value, int64_t &out) { return out = as_bits(value), 0; }

int to_real(int64_t a, int64_t, int64_t &out) { return real((double)a, out); }
int real_add(int64_t a, int64_t b, int64_t &out) { return real(as_double(a) + as_double(b), out); }
int real_sub(int64_t a, int64_t b, int64_t &out) { return real(as_double(a) - as_double(b), out); }
int real_mul(int64_t a, int64_t b, int64_t &out) { return real(as_double(a) * as_double(b), out); }
int real_neg(int64_t a, int64_t, int64_t &out) { return real(-as_double(a), out); }
int real_abs(int64_t a, int64_t, int64_t &out) { return real(std::fabs(as_double(a)), out); }
int real_least(int64_t a, int64_t b, int64_t &out) {
    return out = as_double(b) < as_double(a) ? b : a, 0;
}
int real_most(int64_t a, int64_t b, int64_t &out) {
    return out = as_double(b) > as_double(a) ? b : a, 0;
}

int real_div(int64_t a, int64_t b, int64_t &out) {
    if (as_double(b) == 0) return division_by_zero();
    return real(as_double(a) / as_double(b), out);
}

int whole(double value, int64_t &out) { return real_whole(value, &out) ? 0 : too_large(); }

int real_trunc(int64_t a, int64_t, int64_t &out) { return whole(std::trunc(as_double(a)), out); }
int real_floor(int64_t a, int64_t, int64_t &out) { return whole(std::floor(as_double(a)), out); }
int real_ceil(int64_t a, int64_t, int64_t &out) { return whole(std::ceil(as_double(a)), out); }
int real_round(int64_t a, int64_t, int64_t &out) {
    return whole(std::nearbyint(as_double(a)), out);
}

int real_floordiv(int64_t a, int64_t b, int64_t &out) {
    double quotient, remainder;
    if (!real_divmod(as_double(a), as_double(b), &quotient, &remainder)) return division_by_zero();
    return real(quotient, out);
}

int real_mod(int64_t a, int64_t b, int64_t &out) {
    double quotient, remainder;
    if (!real_divmod(as_double(a), as_double(b), &quotient, &remainder)) return division_by_zero();
    return real(remainder, out);
}

int real_pow(int64_t a, int64_t b, int64_t &out) {
    double value;
    return real_power(as_double(a), as_double(b), &value) ? real(value, out) : too_large();
}

int real_sqrt(int64_t a, int64_t, int64_t &out) {
    double value;
    return real_root(as_double(a), &value) ? real(value, out) : too_large();
}

int real_to_places(int64_t a, int64_t b, int64_t &out) {
    double value;
    return real_digits(as_double(a), as_double(b), &value) ? real(value, out) : too_large();
}

template <double function(double)> int real_of(int64_t a, int64_t, int64_t &out) {
    return real(function(as_double(a)), out);
}
template <double function(double, double)> int real_of(int64_t a, int64_t b, int64_t &out) {
    return real(function(as_double(a), as_double(b)), out);
}

int both(int64_t a, int64_t b, int64_t &out) { return out = a & b, 0; }
int either(int64_t a, int64_t b, int64_t &out) { return out = a | b, 0; }
int differing(int64_t a, int64_t b, int64_t &out) { return out = a ^ b, 0; }

// In the order of `CODES` in runtime/program/registers.py.
const Operation OPERATIONS[] = {
    add,           sub,        mul,       floordiv,   mod,        least,     most,
    absolute,      to_real,    real_add,  real_sub,   real_mul,   real_div,  real_neg,
    real_abs,      real_least, real_most, real_trunc, real_floor, real_ceil, real_round,
    real_floordiv, real_mod,   real_pow,  real_sqrt,  real_of<::exp>, real_of<::log>, both,
    either,        differing,  real_of<::sin>,  real_of<::cos>,   real_of<::tan>,   real_of<::tanh>,
    real_of<::asin>, real_of<::acos>, real_of<::atan>, real_of<::sinh>, real_of<::cosh>,
    real_of<::expm1>, real_of<::log1p>, real_of<::log2>, real_of<::log10>, real_of<::atan2>,
    real_of<::fmod>, real_to_places, real_of<real_lost>};

int read_number(const NumberRead &read, PyObject *input, int64_t &out) {
    if (read.source == NumberSource::real) {
        out = as_bits(PyFloat_AsDouble(input));
        return PyErr_Occurred() ? -1 : 0;
    }
    if (read.source == NumberSource::integer) {
        out = PyLong_AsLongLong(input);
        return out == -1 && PyErr_Occurred() ? -1 : 0;
    }
    int64_t *all;
    Handle handle = handle_of(input);
    if (read.source == NumberSource::offset) return torch_api.get_storage_offset(handle, &out);
    if (read.source == NumberSource::size ? torch_api.get_sizes(handle, &all)
                                          : torch_api.get_strides(handle, &all))
        return -1;
    out = all[read.dim];
    return 0;
}

}  // namespace

int numbers_fill(const Numbers &numbers, PyObject *const *inputs, int64_t *registers) {
    std::memcpy(registers, numbers.registers.data(), numbers.registers.size() * sizeof(int64_t));
    for (const NumberRead &read : numbers.reads)
        if (read_number(read, inputs[read.input], registers[read.target])) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_RuntimeError, "graftjit: reading a tensor's sizes failed");
            return -1;
        }
    for (const NumberOp &op : numbers.code)
        if (OPERATIONS[op.code](registers[op.left], registers[op.right], registers[op.target]))
            return -1;
    return 0;
}

bool numbers_read(PyObject *lowered, int32_t n_inputs, int32_t n_numbers, Numbers &out) {
    PyObject *registers, *reads, *code;
    if (!PyArg_ParseTuple(lowered, "O!O!O!", &PyTuple_Type, &registers, &PyTuple_Type, &reads,
                          &PyTuple_Type, &code))
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(registers); i++)
        out.registers.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(registers, i)));
    auto n = (int)out.registers.size();
    bool good = !PyErr_Occurred();
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(reads); i++) {
        int target, source, input, dim;
        good =
            PyArg_ParseTuple(PyTuple_GET_ITEM(reads, i), "iiii", &target, &source, &input, &dim) &&
            target >= 0 && target < n && source >= 0 && source <= (int)NumberSource::real &&
            dim >= 0;
        // Sizes are read from tensors, numbers from the arguments after them.
        bool of_tensor = source <= (int)NumberSource::offset;
        good = good && input >= (of_tensor ? 0 : n_inputs) &&
               input < n_inputs + (of_tensor ? 0 : n_numbers);
        out.reads.push_back({target, input, dim, (NumberSource)source});
    }
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(code); i++) {
        int which, target, left, right;
        good =
            PyArg_ParseTuple(PyTuple_GET_ITEM(code, i), "iiii", &which, &target, &left, &right) &&
            which >= 0 && which < (int)std::size(OPERATIONS) && target >= 0 && target < n &&
            left >= 0 && left < n && right >= 0 && right < n;
        out.code.push_back({target, left, right, (uint8_t)which});
    }
    if (!good && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "graftjit: a program's numbers cannot be read");
    return good;
}
