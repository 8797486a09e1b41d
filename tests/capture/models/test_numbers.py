"""Numbers, strings and f-strings inside a frame."""

from __future__ import annotations

import math

from ..harness import agrees, t


@agrees(graphs=1, breaks=0)
def test_arithmetic():
    def f(x, a, b):
        c = (a + b) * 2 - a // b + a % b + a**2 / b
        d = (a << 2) | b & 3 ^ 1
        return x * c + d - (-a) + (+b) + ~a, abs(-a), divmod(a, b), round(a / b, 2), pow(a, b, 5)

    return f, (t(3), 7, 2)


@agrees(graphs=1, breaks=0)
def test_comparisons():
    def f(x, a, b):
        return (
            x * 2,
            a < b,
            a <= b,
            a == b,
            a != b,
            a > b,
            a >= b,
            1 < a < 10,
            a and b,
            a or b,
            not a,
        )

    return f, (t(3), 7, 2)


@agrees(calls=2)
def test_exact_constants_in_results():
    def f(x, a):
        return (
            x + 1,
            a,
            0.0 * -1,
            -a,
            complex(1, a),
            float("nan") != float("nan"),
            True + 1,
            1e300 * 1e10,
        )

    return f, (t(2), 0.5)


@agrees(graphs=1, breaks=0)
def test_fstrings():
    def f(x, n, s):
        return x + n, f"{n} {n:03d} {n / 7:.3f} {s!r:>8} {s:^{n}} {n=} {x.shape} {x.dtype}"

    return f, (t(2, 2), 9, "ab")


@agrees(graphs=1, breaks=0)
def test_string_methods():
    def f(x, s):
        parts = s.split(",")
        y = x
        for p in parts:
            if p.startswith("m") and p.strip()[-1].isdigit():
                y = y * int(p[1:])
        return (
            y,
            "-".join(parts),
            s.upper(),
            s.replace("m", "n"),
            s[::-1],
            "m2" in s,
            s % (),
            s.encode(),
        )

    return f, (t(2), "m2,m3,a4")


@agrees(graphs=1)
def test_percent_and_format():
    def f(x, a):
        return x * a, "%d-%s" % (a, "q"), "{:>4}|{name}".format(a, name="z")

    return f, (t(2), 3)


@agrees()
def test_fstring_of_tensor_breaks():
    def f(x):
        y = x * 2
        s = f"sum {y.sum():.2f}"
        return y + 1, s

    return f, (t(3),)


@agrees()
def test_numbers_change_type_between_calls():
    def f(x, a):
        return x * 1, a, type(a), isinstance(a, bool), a is True

    x = t(2)
    return f, (x, 1), [lambda: (x, True), lambda: (x, 1.0), lambda: (x, 1), lambda: (x, False)]


@agrees()
def test_minus_zero_and_nan_between_calls():
    def f(x, a):
        return x * a, math.copysign(1.0, a), a == a

    x = t(2)
    nan = float("nan")
    return f, (x, 0.0), [lambda: (x, -0.0), lambda: (x, nan), lambda: (x, 0.0), lambda: (x, nan)]


@agrees(graphs=1, breaks=0)
def test_math_functions():
    def f(x, a):
        return (
            x * math.sqrt(a) + math.pi,
            math.floor(a),
            math.gcd(12, 18),
            math.prod([1, 2, 3]),
            math.inf,
        )

    return f, (t(2), 2.5)


@agrees()
def test_division_by_zero():
    def f(x, a):
        y = x + 1
        return y / (3 // a)

    x = t(2)
    return f, (x, 0), [lambda: (x, 1), lambda: (x, 0)]


@agrees()
def test_conversions():
    def f(x, s):
        n = int(s)
        return (
            x * n,
            float(s),
            str(n),
            bool(s),
            hex(n),
            chr(n),
            ord("a"),
            bytes([n]),
            repr(s),
            hash(n),
        )

    return f, (t(2), "65"), [lambda: (t(2), "x"), lambda: (t(2), "66")]


@agrees()
def test_string_and_number_subclasses():
    class Text(str):
        def upper(self):
            return "mine"

    class Number(int):
        def __add__(self, other):
            return 100

    def f(x, s, n):
        return x * 2, s.upper(), s, n + 1, isinstance(n, int)

    return f, (t(2), Text("a"), Number(3))


@agrees(calls=2)
def test_sum_min_max():
    def f(x, items):
        return (
            x * sum(items),
            min(items),
            max(items, key=lambda v: -v),
            min(3, 1, 2),
            max([], default=9),
        )

    return f, (t(2), [3, 1, 2])


@agrees(calls=2)
def test_big_numbers():
    def f(x):
        n = 2**100
        return x * 2, n, n % 1000007, 1 << 70, "a" * 5

    return f, (t(2),)


@agrees(calls=2)
def test_augmented_assignment():
    def f(x, a):
        a += 1
        a *= 3
        a -= 2
        a /= 2
        a **= 2
        y = x * 1
        y += a
        y *= 2
        y -= x
        y /= 3
        return y, a

    return f, (t(2), 2)


@agrees(calls=2)
def test_walrus_and_ternary():
    def f(x, n):
        y = x * (k := n + 1) if n > 2 else x - (k := n)
        return y, k, [z for i in range(4) if (z := i * k) > 3]

    x = t(2)
    return f, (x, 1), [lambda: (x, 5)]


@agrees(calls=3)
def test_functions_of_numbers_refuse_what_python_refuses():
    def f(x, n):
        found = []
        for fn in (
            float,
            math.sqrt,
            math.fabs,
            math.degrees,
            math.exp,
            int,
            abs,
            bool,
            round,
            hash,
        ):
            try:
                found.append(fn(n))
            except (OverflowError, ValueError) as error:
                found.append(str(error))
        return x + 1, found

    return f, (t(2), 3), [lambda: (t(2), 4), lambda: (t(2), 1 << 2000)]
