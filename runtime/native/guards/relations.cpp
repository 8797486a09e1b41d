#include "guards/relations.h"

#include "executor/python_float.h"
#include "tensors/tensor.h"
#include "tensors/torch_api.h"

#include <cmath>
#include <cstring>
#include <vector>

namespace {

enum class Step {
    load,
    whole,
    real,
    to_real,
    iadd,
    imul,
    ifloordiv,
    imod,
    imin,
    imax,
    iabs,
    fadd,
    fsub,
    fmul,
    ftruediv,
    ffloordiv,
    fmod,
    fpow,
    fneg,
    fabs,
    function,
    fmin,
    fmax,
    fatan2,
    ffmod,
    fdigits,
    flost,
    iand,
    ior,
    ixor,
    trunc,
    floor,
    ceil,
    round
};

struct StepLaw {
    const char *name;
    Step step;
    int takes;
    double (*function)(double) = nullptr;
};

const StepLaw STEPS[] = {
    {"load", Step::load, 0},
    {"int", Step::whole, 0},
    {"float", Step::real, 0},
    {"to_float", Step::to_real, 1},
    {"int add", Step::iadd, 2},
    {"int mul", Step::imul, 2},
    {"int floordiv", Step::ifloordiv, 2},
    {"int mod", Step::imod, 2},
    {"int min", Step::imin, 2},
    {"int max", Step::imax, 2},
    {"int abs", Step::iabs, 1},
    {"float add", Step::fadd, 2},
    {"float sub", Step::fsub, 2},
    {"float mul", Step::fmul, 2},
    {"float truediv", Step::ftruediv, 2},
    {"float floordiv", Step::ffloordiv, 2},
    {"float mod", Step::fmod, 2},
    {"float pow", Step::fpow, 2},
    {"float neg", Step::fneg, 1},
    {"float abs", Step::fabs, 1},
    {"float min", Step::fmin, 2},
    {"float max", Step::fmax, 2},
    {"float atan2", Step::fatan2, 2},
    {"float fmod", Step::ffmod, 2},
    {"float digits", Step::fdigits, 2},
    {"float lost", Step::flost, 2},
    {"float sqrt", Step::function, 1, ::sqrt},
    {"float exp", Step::function, 1, ::exp},
    {"float log", Step::function, 1, ::log},
    {"float sin", Step::function, 1, ::sin},
    {"float cos", Step::function, 1, ::cos},
    {"float tan", Step::function, 1, ::tan},
    {"float tanh", Step::function, 1, ::tanh},
    {"float asin", Step::function, 1, ::asin},
    {"float acos", Step::function, 1, ::acos},
    {"float atan", Step::function, 1, ::atan},
    {"float sinh", Step::function, 1, ::sinh},
    {"float cosh", Step::function, 1, ::cosh},
    {"float expm1", Step::function, 1, ::expm1},
    {"float log1p", Step::function, 1, ::log1p},
    {"float log2", Step::function, 1, ::log2},
    {"float log10", Step::function, 1, ::log10},
    {"int and", Step::iand, 2},
    {"int or", Step::ior, 2},
    {"int xor", Step::ixor, 2},
    {"int int", Step::trunc, 1},
    {"int floor", Step::floor, 1},
    {"int ceil", Step::ceil, 1},
    {"int round", Step::round, 1},
};
const char *const OUTCOMES[] = {"==", "!=", "<", "<=", ">", ">=", "is"};
constexpr int MOST = 32;  // limit of numbers on the stack

struct Number {
    bool real;
    int64_t i;
    double d;
};

struct Code {
    Step step;
    int64_t i;
    double d;
    double (*function)(double);
};

struct Read {
    int reg;
    char what;  // 'i' int, 'f' float, 's' size, 't' stride
    int64_t dim;
};

bool to_whole(double rounded, Number &out) {
    out.real = false;
    return real_whole(rounded, &out.i);
}

int64_t floor_quotient(int64_t a, int64_t b) {
    return a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
}

// Runs one step; false if the relation cannot hold.
bool run(const Code &code, const std::vector<Number> &numbers, Number *stack, int &top) {
    Number &a = stack[top - 2 < 0 ? 0 : top - 2], &b = stack[top - 1 < 0 ? 0 : top - 1];
    switch (code.step) {
        case Step::load: stack[top++] = numbers[code.i]; return true;
        case Step::whole: stack[top++] = {false, code.i, 0}; return true;
        case Step::real: stack[top++] = {true, 0, code.d}; return true;
        case Step::to_real:
            if (b.real) return true;
            if (b.i > (INT64_C(1) << 53) || b.i < -(INT64_C(1) << 53)) return false;
            b = {true, 0, (double)b.i};
            return true;
        case Step::iabs:
            if (b.i == INT64_MIN) return false;
            b.i = b.i < 0 ? -b.i : b.i;
            return true;
        case Step::fneg: b.d = -b.d; return true;
        case Step::fabs: b.d = std::fabs(b.d); return true;
        case Step::function: b.d = code.function(b.d); return std::isfinite(b.d);
        case Step::trunc: return to_whole(std::trunc(b.d), b);
        case Step::floor: return to_whole(std::floor(b.d), b);
        case Step::ceil: return to_whole(std::ceil(b.d), b);
        case Step::round: return to_whole(std::nearbyint(b.d), b);
        default: break;
    }
    top--;
    switch (code.step) {
        case Step::iadd: return !__builtin_add_overflow(a.i, b.i, &a.i);
        case Step::imul: return !__builtin_mul_overflow(a.i, b.i, &a.i);
        case Step::ifloordiv:
            if (b.i == 0 || (b.i == -1 && a.i == INT64_MIN)) return false;
            a.i = floor_quotient(a.i, b.i);
            return true;
        case Step::imod:
            if (b.i == 0) return false;
            a.i = b.i == -1 ? 0 : a.i - floor_quotient(a.i, b.i) * b.i;
            return true;
        case Step::imin: a.i = b.i < a.i ? b.i : a.i; return true;
        case Step::imax: a.i = b.i > a.i ? b.i : a.i; return true;
        case Step::iand: a.i &= b.i; return true;
        case Step::ior: a.i |= b.i; return true;
        case Step::ixor: a.i ^= b.i; return true;
        case Step::fadd: a.d += b.d; return true;
        case Step::fsub: a.d -= b.d; return true;
        case Step::fmul: a.d *= b.d; return true;
        case Step::ftruediv:
            if (b.d == 0) return false;
            a.d /= b.d;
            return true;
        case Step::ffloordiv: return real_divmod(a.d, b.d, &a.d, &b.d);
        case Step::fmod: return real_divmod(a.d, b.d, &b.d, &a.d);
        case Step::fpow: return real_power(a.d, b.d, &a.d);
        case Step::fmin: a.d = b.d < a.d ? b.d : a.d; return true;
        case Step::fmax: a.d = b.d > a.d ? b.d : a.d; return true;
        case Step::fatan2: a.d = std::atan2(a.d, b.d); return true;
        case Step::ffmod:
            if (b.d == 0 || !std::isfinite(a.d)) return false;
            a.d = std::fmod(a.d, b.d);
            return true;
        case Step::flost: a.d = real_lost(a.d, b.d); return true;
        case Step::fdigits: return real_digits(a.d, b.d, &a.d);
        default: return false;
    }
}

template <class T> bool outcome(int op, T left, T right) {
    switch (op) {
        case 0: return left == right;
        case 1: return left != right;
        case 2: return left < right;
        case 3: return left <= right;
        case 4: return left > right;
        default: return left >= right;
    }
}

bool read(PyObject *value, const Read &at, Number &into) {
    if (at.what == 's' || at.what == 't') {
        into.real = false;
        return tensor_extent(value, at.what == 's', at.dim, &into.i);
    }
    if (at.what == 'f') {
        if (!PyFloat_CheckExact(value)) return false;
        into = {true, 0, PyFloat_AS_DOUBLE(value)};
        return true;
    }
    int over = 0;
    if (!PyLong_CheckExact(value)) return false;
    into = {false, PyLong_AsLongLongAndOverflow(value, &over), 0};
    return over == 0;
}

bool fail(const char *why) {
    PyErr_Format(PyExc_ValueError, "guard program: a relation %s", why);
    return false;
}

}  // namespace

struct RelationRecord {
    std::vector<Read> reads;
    std::vector<Code> code;
    int op;
    bool holds;
};

namespace {

bool add_code(RelationRecord *record, PyObject *item, int &top) {
    const char *name;
    PyObject *operand;
    if (!PyArg_ParseTuple(item, "sO", &name, &operand)) return false;
    for (const StepLaw &law : STEPS) {
        if (strcmp(law.name, name) != 0) continue;
        Code code{law.step, 0, 0, law.function};
        if (law.step == Step::load || law.step == Step::whole) code.i = PyLong_AsLongLong(operand);
        if (law.step == Step::real) code.d = PyFloat_AsDouble(operand);
        if (PyErr_Occurred()) return false;
        if (law.step == Step::load && (code.i < 0 || code.i >= (int64_t)record->reads.size()))
            return fail("loads what is not read");
        if (top < law.takes) return fail("takes what is not there");
        top += law.takes == 2 ? -1 : law.takes == 0 ? 1 : 0;
        if (top > MOST) return fail("is too deep");
        record->code.push_back(code);
        return true;
    }
    return fail("has an unknown step");
}

bool fill(RelationRecord *record, PyObject *expected, int n_registers) {
    PyObject *reads, *code;
    const char *op;
    int holds, top = 0;
    if (!PyArg_ParseTuple(expected, "O!O!sp", &PyTuple_Type, &reads, &PyTuple_Type, &code, &op,
                          &holds))
        return false;
    record->holds = holds;
    record->op = -1;
    for (int i = 0; i < 7; i++)
        if (strcmp(OUTCOMES[i], op) == 0) record->op = i;
    if (record->op < 0) return fail("has an unknown comparison");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(reads); i++) {
        const char *what;
        long long dim;
        Read at;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(reads, i), "isL", &at.reg, &what, &dim))
            return false;
        if (at.reg < 0 || at.reg >= n_registers) return fail("names no register");
        at.what = strcmp(what, "stride") == 0 ? 't' : what[0];
        if (strchr("ifst", at.what) == nullptr || at.what == 0)
            return fail("reads what there is not");
        at.dim = dim;
        record->reads.push_back(at);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code); i++)
        if (!add_code(record, PyTuple_GET_ITEM(code, i), top)) return false;
    return top == 2 || fail("leaves no two sides");
}

}  // namespace

RelationRecord *relation_record_new(PyObject *expected, int n_registers) {
    auto *record = new RelationRecord();
    if (fill(record, expected, n_registers)) return record;
    delete record;
    return nullptr;
}

void relation_record_free(RelationRecord *record) { delete record; }

std::vector<int> relation_registers(const RelationRecord *record) {
    std::vector<int> registers;
    for (const Read &one : record->reads) registers.push_back(one.reg);
    return registers;
}

bool relation_record_holds(const RelationRecord *record, PyObject **registers) {
    std::vector<Number> numbers(record->reads.size());
    Number stack[MOST];
    int top = 0;
    for (size_t i = 0; i < numbers.size(); i++)
        if (!read(registers[record->reads[i].reg], record->reads[i], numbers[i])) return false;
    for (const Code &code : record->code)
        if (!run(code, numbers, stack, top)) return false;
    const Number &left = stack[0], &right = stack[1];
    if (left.real != right.real) return false;
    if (record->op == 6) return memcmp(&left.d, &right.d, sizeof(double)) == 0;
    bool found =
        left.real ? outcome(record->op, left.d, right.d) : outcome(record->op, left.i, right.i);
    return found == record->holds;
}

bool number_in_range(PyObject *value, PyObject *expected) {
    PyObject *type = PyTuple_GET_ITEM(expected, 0);
    if ((PyObject *)Py_TYPE(value) != type) return false;
    if (!PyLong_CheckExact(value)) return true;
    int over = 0;
    long long number = PyLong_AsLongLongAndOverflow(value, &over);
    if (over != 0) return false;
    for (int end = 1; end <= 2; end++) {
        PyObject *limit = PyTuple_GET_ITEM(expected, end);
        if (limit == Py_None) continue;
        long long at = PyLong_AsLongLong(limit);
        if (end == 1 ? number < at : number > at) return false;
    }
    return true;
}
