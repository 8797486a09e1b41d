// Operations of Python floats that C has no operator for, with bit-equal results. Each returns
// false where Python raises or returns another type; then the result is undefined.
#pragma once
#include <Python.h>

#include <cmath>
#include <cstdint>

// The remainder has the sign of the divisor. The quotient is the integer nearest to (a - remainder)
// / b.
inline bool real_divmod(double a, double b, double *quotient, double *remainder) {
    if (b == 0) return false;
    double rest = std::fmod(a, b), exact = (a - rest) / b;
    if (rest == 0) {
        rest = std::copysign(0.0, b);
    } else if ((b < 0) != (rest < 0)) {
        rest += b;
        exact -= 1;
    }
    double below = std::floor(exact);
    *quotient = exact == 0 ? std::copysign(0.0, a / b) : exact - below > 0.5 ? below + 1 : below;
    *remainder = rest;
    return true;
}

inline bool real_power(double a, double b, double *out) {
    if (!(a > 0) || !std::isfinite(a) || !std::isfinite(b)) return false;
    *out = std::pow(a, b);
    return std::isfinite(*out);
}

inline bool real_root(double a, double *out) {
    *out = std::sqrt(a);
    return a >= 0;
}

// The rounding error of a + b, exactly (Knuth, The Art of Computer Programming 2, 4.2.2).
inline double real_lost(double a, double b) {
    double after = a + b, part = after - a;
    return (a - (after - part)) + (b - part);
}

// round(number, places): the float nearest to the decimal number of so many places. Python's own
// functions write and read it, as its round() does.
inline bool real_digits(double number, double places, double *out) {
    if (!std::isfinite(number)) return false;
    char *text = PyOS_double_to_string(number, 'f', (int)places, 0, nullptr);
    if (text == nullptr) return false;
    *out = PyOS_string_to_double(text, nullptr, nullptr);
    PyMem_Free(text);
    return std::isfinite(*out) && !PyErr_Occurred();
}

// Converts a rounded float to an integer. False for nan and infinities, for which Python raises,
// and for integers of more than 62 bits.
inline bool real_whole(double rounded, int64_t *out) {
    if (!(rounded > -0x1p62 && rounded < 0x1p62)) return false;
    *out = (int64_t)rounded;
    return true;
}
