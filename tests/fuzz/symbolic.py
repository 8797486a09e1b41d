"""Fuzz programs over sizes and numbers that vary from call to call, plain against compiled.

    python -m tests.fuzz.symbolic --seed 0 --count 200
    python -m tests.fuzz.symbolic --seed 17 --show

A program is a function of three tensors, two numbers and an object, over globals; between its calls sizes (0, 1, equal
and unequal ones), numbers (also True for 1, -0.0, nan, beyond 64 bits), layouts and the object's attributes change.
Each statement is chosen so that it runs for the first call's arguments; for later ones it may raise, which is
compared like results. Running, comparing and making small are `tests.fuzz.programs`.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
import sys
import types
import warnings
from dataclasses import replace
from typing import Any

import torch

from graftjit import JitConfig, jit

from . import programs
from .statements import Program, Statement, parse

PRELUDE = """\
import math
import torch
import torch.nn.functional as F
from graftjit import mark_dynamic
class Holder:
    def __init__(self, n, k):
        self.n = n
        self.k = k
OBJ = Holder(3, 0.5)
GI = 4
GF = 1.25
def data(*shape, dtype=torch.float32):
    whole = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)
    return (torch.sin(whole * 1.7 + 0.3) * 3).to(dtype)
def turned(x):
    return x.transpose(0, -1).contiguous().transpose(0, -1)
def part(*shape):
    return data(*shape[:-1], shape[-1] + 2)[..., 1:-1]
def marked(x, *dims):
    for dim in dims:
        mark_dynamic(x, dim)
    return x
def grad(x):
    return x.requires_grad_()
def helper(a, s, by=2):
    if a.shape[0] > s:
        return a * s + a.shape[0] // by
    return a - s
def twice(a, s):
    return helper(helper(a, s), s + 1, by=3)
"""
SHAPES = {  # of x, y, z, over the sizes a, b, c
    "x": (("a", "b"), ("a", "b"), ("a",), ("a", "b", "c"), ("b", "a")),
    "y": (("a", "b"), ("b", "c"), ("b",), ("a", 1), (1, "b"), ("a", "b", "c"), ("c", "b")),
    "z": (("b", "a"), ("a", "a"), ("c",), ("b",), (3, "b"), ("a", "b")),
}
SIZES = (0, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 33)
SMALL = (2, 3, 4, 5, 6, 7, 3, 4)
NUMBERS = (0, 1, -1, -2, -3, 2, 3, 4, 5, 6, 7, 8, 9)
ODD_NUMBERS = (True, False, 2**40, 2**63 - 1, 2**63, 2**70, -(2**63), -(2**64), 1.0, 2.5)
REALS = (0.5, 1.5, -2.0, 3.25, 0.25, -0.75, 2.0, 4.5, 7.125)
ODD_REALS = (0.0, -0.0, 1.0, -1.0, 3, True, 1e300, 1e-300)
NOT_REAL = ("float('nan')", "float('inf')", "-float('inf')")
ARGUMENTS = ("x", "y", "z", "n", "k", "o")
TRIES = 12  # of a statement that is to run


def jitted(function: Any, config: JitConfig | None = None) -> Any:
    """`jit`, as dynamic as the program says; at the level that users have, where no other is given."""
    config = config or JitConfig()
    return jit(function, config=replace(config, dynamic=function.__globals__.get("DYNAMIC")))


# -- the templates ------------------------------------------------------------------------------------

# What statements are made of, with places for what they work on: {t} a tensor, {i} a whole number, {k} a float,
# {c} a condition. Each list is drawn from evenly.
PLACE = re.compile(r"\{([tikc])\}")

INTS = (
    "{t}.shape[0]", "{t}.shape[-1]", "{t}.size(-1)", "{t}.size(0)", "{t}.numel()", "len({t})", "{t}.dim()",
    "{t}.shape.numel()", "{t}.nelement()", "{t}.stride(0)", "{t}.stride()[-1]", "{t}.storage_offset()", "len({t}.shape)",
    "sum({t}.shape)", "math.prod({t}.shape)", "max({t}.shape)", "min({t}.shape)", "{t}.shape[0] * {t}.shape[-1]",
    "{i} + {i}", "{i} - {i}", "{i} * {i}", "{i} // {i}", "{i} % {i}", "{i} // 2", "{i} % 3", "-{i}", "+{i}", "~{i}",
    "abs({i})", "{i} ** 2", "{i} ** 3", "{i} << 1", "{i} >> 1", "{i} & 3", "{i} | 4", "{i} ^ {i}", "1 << abs({i} % 9)",
    "min({i}, {i})", "max({i}, {i})", "min({i}, {i}, 5)", "max([{i}, {i}, 2])", "divmod({i}, {i})[0]",
    "divmod({i}, 3)[1]", "round({i})", "round({k})", "round({i}, -1)", "int({k})", "int({i})", "int({i} / 2)",
    "math.floor({k})", "math.ceil({k})", "math.ceil({i} / 2)", "math.trunc({k})", "math.isqrt(abs({i}))",
    "math.gcd({i}, {i})", "hash({i})", "{i}.bit_length()", "int({i} > {i})", "({i} > {i}) + {i}", "len(range({i}))",
    "len([0] * ({i} % 7))", "{i} if {c} else {i}", "{i} and {i}", "{i} or {i}", "sum([{i}, {i}, 1])", "int({i} == {i})",
    "pow({i}, 2)", "pow({i}, 3, 7)", "sum(d for d in {t}.shape if d > 2)", "{t}.shape[{i}]", "(lambda q: q * 2 + 1)({i})",
    "[{i}, {i}, {i}][{i} % 3]", "int(str({i}))", "{t}.ndim * {i}", "-({i} // -2)", "({i} + 7) // 8 * 8",
)  # fmt: skip
FLOATS = (
    "{k} + {k}", "{k} - {i}", "{k} * {k}", "{i} / 2", "{i} / {i}", "{k} / {k}", "{k} // {k}", "{k} % {k}", "{k} // 2", "{i} % {k}",
    "float({i})", "float({k})", "abs({k})", "-{k}", "{k} ** 2", "{i} ** -1", "{i} ** 0.5", "2.0 ** {i}", "{k} * {i} + 0.5",
    "math.sqrt(abs({i}))", "math.sqrt({i})", "math.exp({k})", "math.log({i})", "math.sin({k})", "math.pow({k}, 2)",
    "min({k}, {k})", "max({k}, {i})", "min({i}, {k})", "round({k}, 1)", "divmod({k}, 2)[1]", "1.0 / {t}.shape[-1]",
    "{t}.shape[-1] ** -0.5", "1 / math.sqrt({t}.size(-1))", "{k} if {c} else {k}", "{k} or 2.0", "sum([{k}, {i}])",
    "{t}.numel() / {i}", "math.fabs({k})", "math.copysign(1.0, {k})", "float('1.5') * {i}", "{k}.__add__({k})", "math.hypot({k}, {i})",
    "0.9 ** {i}", "0.5 ** {k}", "math.pow(0.9, {i})", "10 ** {k}",
)  # fmt: skip

CONDITIONS = (
    "{i} < {i}", "{i} == {i}", "{i} >= {i}", "{i} != {i}", "{k} > {i}", "{k} == {k}", "{k} < {k}", "{t}.shape[0] == {t}.shape[-1]",
    "{i} % 2 == 0", "{t}.shape == {t}.shape", "not {i}", "{i}", "{k}", "{i} in (2, 3, 5)", "1 < {i} < 5", "{k} != {k}",
    "{t}.is_contiguous()", "{t}.shape[0] != 1", "{t}.numel() == 0", "{t}.dim() == 2 and {t}.shape[0] > 3", "{t}.shape[-1] > {i}",
    "isinstance({i}, int)", "isinstance({k}, float)", "{i} is True", "{t}.sum() > {k}", "math.isnan({k})", "{t}.size() == (3, 4)",
    "{t}.shape[0] in {t}.shape", "{i} > 0 or {k} > 0", "any(d > 4 for d in {t}.shape)", "{t}.requires_grad", "bool({t}.numel())",
    "math.isinf({k})", "type({i}) is int", "{i} * 2 > {t}.numel()", "{t}.stride(0) == {t}.shape[-1]", "{t}.shape[:1] == {t}.shape[-1:]",
)  # fmt: skip

TENSORS = (
    # pointwise
    "{t} + {t}", "{t} * {k}", "{t} + {i}", "{t} - {t}.mean()", "{t} / {i}", "{t} // {i}", "{t} % {i}", "{i} - {t}", "{k} / {t}",
    "{t}.sin()", "{t}.exp().clamp(max={k})", "{t}.clamp(min={k})", "{t}.clamp({i}, {i})", "{t}.relu() * {t}.shape[0]",
    "{t}.pow({i})", "{t} ** {k}", "{t}.float() ** 2", "torch.where({t} > {k}, {t}, {t} * 0)", "torch.where({t} > 0, {i}, {k})",
    "torch.maximum({t}, {t})", "{t}.to(torch.float64)", "{t}.half().float()", "{t}.abs().sqrt()", "torch.add({t}, {t}, alpha={i})",
    "torch.lerp({t}, {t}, {k})", "torch.addcmul({t}, {t}, {t}, value={k})", "{t}.masked_fill({t} > 0, {k})", "{t} > {i}", "{t} == {k}",
    "F.leaky_relu({t}, {k})", "F.gelu({t})", "F.hardtanh({t}, -{k}, {k})", "F.threshold({t}, {k}, {k})", "{t}.sigmoid()", "-{t}",
    # views
    "{t}.reshape(-1)", "{t}.reshape({t}.shape[0], -1)", "{t}.view(-1)", "{t}.view({t}.shape)", "{t}.view(-1, {t}.shape[-1])",
    "{t}.t()", "{t}.transpose(0, -1)", "{t}.mT", "{t}.permute(*reversed(range({t}.dim())))", "{t}.unsqueeze(0)", "{t}.unsqueeze(-1)",
    "{t}.squeeze()", "{t}.squeeze(0)", "{t}.flatten()", "{t}.flatten(0, 1)", "{t}.expand({i}, *{t}.shape)", "{t}[None].expand(3, *{t}.shape)",
    "{t}.expand_as({t})", "{t}.unflatten(0, (-1, 1))", "{t}.unflatten(-1, (2, -1))", "{t}.movedim(0, -1)", "{t}.diagonal()", "{t}.unfold(0, 2, 1)",
    "{t}.reshape({i}, -1)", "{t}.reshape(-1, 2)", "{t}.view_as({t})", "{t}.contiguous()", "{t}.swapaxes(0, -1)", "{t}.ravel()",
    "{t}.as_strided(({i}, 2), (1, 1))", "{t}.broadcast_to({t}.shape)", "torch.atleast_2d({t})", "{t}.detach()", "{t}.view({i}, -1)",
    # slices and index
    "{t}[0]", "{t}[-1]", "{t}[{i}]", "{t}[:{i}]", "{t}[{i}:]", "{t}[-{i}:]", "{t}[1:]", "{t}[..., :-1]", "{t}[::2]", "{t}[{i}:{i}]", "{t}[..., {i}]",
    "{t}[::{i}]", "{t}[:, None]", "{t}[..., None, :]", "{t}[:{t}.shape[0] // 2]", "{t}[{t}.shape[0] // 2:]", "{t}[:, {i}:]", "{t}[:, ::2]",
    "{t}[torch.arange({t}.shape[0])]", "{t}[[0, -1]]", "{t}[{t} > {k}].numel() * {t}", "{t}.narrow(0, 0, {i})", "{t}.narrow(-1, 1, {t}.shape[-1] - 1)",
    "{t}.select(0, {i})", "{t}.index_select(0, torch.arange(2))", "{t}.gather(0, torch.zeros({t}.shape, dtype=torch.int64))", "{t}.take(torch.tensor(0))",
    "{t}.chunk(2)[0]", "{t}.chunk({i})[-1]", "{t}.split(2)[-1]", "{t}.split({i})[0]", "{t}.split([1, {t}.shape[0] - 1])[1]", "{t}.tensor_split(2)[1]",
    "{t}.unbind(0)[-1]", "{t}.flip(0)", "{t}.roll(1, 0)", "{t}.roll({i}, -1)", "{t}.tril()", "{t}.triu({i})", "{t}.rot90()",
    # joins
    "torch.cat([{t}, {t}])", "torch.cat([{t}, {t}], -1)", "torch.stack([{t}, {t}])", "torch.stack([{t}, {t} * {k}], -1)", "torch.cat([{t}] * ({i} % 4))",
    "{t}.repeat({i}, *([1] * ({t}.dim() - 1)))", "{t}.repeat_interleave(2, 0)", "{t}.tile(2)", "torch.hstack([{t}, {t}])", "torch.outer({t}.flatten(), {t}.flatten())",
    # reductions
    "{t}.sum()", "{t}.sum(0)", "{t}.sum(-1)", "{t}.mean(-1, keepdim=True)", "{t}.float().mean(0)", "{t}.amax(-1)", "{t}.max()", "{t}.max(0).values",
    "{t}.argmax(-1)", "{t}.std(0)", "{t}.var(-1, correction=0)", "{t}.prod(0)", "{t}.cumsum(0)", "{t}.cumsum(-1)", "{t}.norm()", "{t}.any()", "{t}.all(-1)",
    "{t}.softmax(-1)", "{t}.softmax(0)", "F.log_softmax({t}, -1)", "{t}.logsumexp(-1)", "{t}.topk(2, 0).values", "{t}.topk(min({i}, 2), -1).values", "{t}.sort(0).values",
    "F.layer_norm({t}, {t}.shape[-1:])", "F.normalize({t}, dim=-1)", "{t}.sum() / {t}.numel()", "{t}.median()", "{t}.float().mean() * {i}",
    # products
    "{t} @ {t}", "{t} @ {t}.t()", "{t}.t() @ {t}", "torch.mm({t}, {t}.t())", "torch.einsum('ij,kj->ik', {t}, {t})", "torch.matmul({t}, {t}.transpose(-1, -2)) * {t}.shape[-1] ** -0.5",
    "torch.addmm({t}, {t}, {t}.t())", "F.linear({t}, {t})", "{t}[None] @ {t}.mT[None]", "torch.dot({t}.flatten(), {t}.flatten())", "torch.baddbmm({t}[None], {t}[None], {t}[None])",
    # made
    "torch.arange({i})", "torch.arange({t}.shape[0]) * {k}", "torch.arange({i}, {i})", "torch.arange(0, {i}, 2)", "torch.arange({k})", "torch.zeros({t}.shape) + {i}",
    "torch.zeros({i}, 3)", "torch.ones({t}.shape[-1], {i}) * {k}", "torch.full(({i}, 2), {k})", "torch.full_like({t}, {i})", "{t}.new_zeros({i}, {t}.shape[-1]) + {k}",
    "torch.linspace(0, 1, {i})", "torch.linspace({k}, {k}, {t}.shape[0])", "torch.eye({i})", "torch.eye({t}.shape[0])", "torch.tensor({i})", "torch.tensor([{i}, {k}])",
    "torch.tensor({k}) * {t}", "torch.empty({t}.shape).fill_({k})", "torch.zeros_like({t})", "{t}.new_ones({t}.shape)", "{t}.new_full((2, {i}), {k})", "torch.tensor({t}.shape)",
    "torch.scalar_tensor({k})", "torch.as_tensor({i})", "torch.tril(torch.ones({i}, {i}))",
    # windows
    "F.pad({t}, (1, {i}))", "F.pad({t}, (0, 8 - {t}.shape[-1] % 8), value={k})", "F.pad({t}, (1, 1, {i}, 0))", "F.avg_pool1d({t}[None], 2)", "F.max_pool1d({t}[None], 2, 1)",
    "F.interpolate({t}[None, None], scale_factor=2)", "F.interpolate({t}[None, None], size=({i}, 3))", "F.one_hot(torch.arange({t}.shape[0]))", "F.adaptive_avg_pool1d({t}[None], 2)",
    "F.conv1d({t}[None], {t}[:, None, :2])", "F.dropout({t}, 0.5, False)", "F.embedding(torch.arange({t}.shape[0]), {t})", "F.scaled_dot_product_attention({t}[None], {t}[None], {t}[None])",
    # calls and in place on a copy
    "helper({t}, {i})", "twice({t}, {i})", "{t}.clone().mul_({k})", "{t}.clone().fill_({i})", "{t}.clone().add_({t})", "{t}.clone().zero_()", "{t}.clone().t_()",
    "{t}.clone().index_fill_(0, torch.tensor([0]), {i})", "{t}.clone().clamp_(min={k})", "{t}.clone().copy_({t})", "{t} if {c} else {t} * 2", "{t}.clone().resize_({i}, 2).fill_(1)",
)  # fmt: skip

STATEMENTS = (
    "x = x.clone()\nx[0] = {i}", "x = x.clone()\nx[:{i}] = {k}", "y = y.clone()\ny[..., 0] += {t}.sum()", "y = y + 0\ny *= {k}", "z = z * 1\nz[1:] = 0",
    "o.n += 1", "o.n = {i}", "o.k = {k}", "o.k *= 0.5", "print({i}, {k})", "print({t}.shape)", "i9 = {i}\ni9 += {i}", "x.add_({i})", "x[{i}:] = {k}", "y.mul_({t}.shape[0])",
    "i8 = [d + 1 for d in {t}.shape]\ni7 = i8[0]", "s1 = f'{{i}} {{t}.shape[0]}'", "i6, i5 = divmod({i}, {i})", "i4, *s2 = {t}.shape\ni3 = len(s2) + i4", "x, y = y, x",
    "s3 = {'a': {i}, 'b': {t}}\nt9 = s3['b'] * s3['a']", "s4 = ({i}, {k}, {t}.shape)\nk9 = s4[1] * s4[0]", "assert {t}.shape[0] < 100, {i}", "s5 = list(range({i} % 6))\ni2 = sum(s5)",
    "try:\n    i1 = {i} // {i}\nexcept ZeroDivisionError as error:\n    i1 = -7\n    print(error)", "i0 = {t}[0].sum().item() if {i} > 3 else {i}", "print({t}.sum().item() > {k})",
    "def inner(a, s={i}):\n    return a * s\nt8 = inner({t})", "t7 = [{t} * d for d in range({i} % 3 + 1)][-1]", "i90 = 0\nwhile i90 < {i} % 5:\n    i90 += 2",
    "t6 = {t}\nfor e in {t}.shape:\n    t6 = t6 * e", "if {c}:\n    raise ValueError(f'{{i}}')", "k8 = {k}\nk8 += {i}\nk8 /= 2", "t5 = torch.stack([{t}[e] for e in range(2)])", "GI\ni91 = GI * 2",
    "t4, t3 = {t}.split([{t}.shape[0] - 1, 1])", "t2, t1 = {t}.chunk(2, -1)", "s6 = slice({i}, None)\nt0 = {t}[s6]", "t92 = {t}.view({t}.size(0), -1)\ni92 = t92.size(1)",
)  # fmt: skip


# -- the calls ----------------------------------------------------------------------------------------


class _Calls:
    """What a program is called with: for each argument a plan, and one of its values for each call."""

    def __init__(self, r: random.Random) -> None:
        self.r = r
        self.shapes = {name: r.choice(SHAPES[name]) for name in SHAPES}
        self.base = {name: r.choice(SMALL) for name in "abc"}
        if r.random() < 0.3:
            self.base["b"] = self.base["a"]
        self.moving = [name for name in "abc" if r.random() < 0.7]
        self.dtypes = {name: r.choice(("float32",) * 6 + ("int64", "float64")) for name in SHAPES}
        self.marks = r.random() < 0.2

    def first(self) -> str:
        return self._call(self.base, plain=True)

    def later(self) -> str:
        r = self.r
        sizes = dict(self.base)
        for name in self.moving:
            if r.random() < 0.7:
                sizes[name] = r.choice(SIZES)
        if r.random() < 0.15:
            sizes["b"] = sizes["a"]
        return self._call(sizes)

    def _call(self, sizes: dict[str, int], plain: bool = False) -> str:
        parts = [f"{name}={self._tensor(name, sizes, plain)}" for name in SHAPES]
        parts += [f"n={self.whole(plain)!r}", f"k={self.real(plain)}", "o=OBJ"]
        return f"({', '.join(parts)})"

    def _tensor(self, name: str, sizes: dict[str, int], plain: bool) -> str:
        r = self.r
        shape = [sizes[d] if isinstance(d, str) else d for d in self.shapes[name]]
        args = ", ".join(map(str, shape))
        text = f"data({args}, dtype=torch.{self.dtypes[name]})"
        if not plain and r.random() < 0.2:
            text = r.choice(
                (
                    f"turned({text})",
                    f"part({args})",
                    f"data({args}).double()",
                    f"grad(data({args}))",
                )
            )
        if self.marks and not plain and r.random() < 0.5:
            text = f"marked({text}, {r.randrange(len(shape))})"
        return text

    def whole(self, plain: bool = False) -> Any:
        r = self.r
        if plain:
            return r.choice((2, 3, 4))
        return r.choice(ODD_NUMBERS if r.random() < 0.06 else NUMBERS)

    def real(self, plain: bool = False) -> str:
        r = self.r
        if not plain and r.random() < 0.15:
            return r.choice((*map(repr, ODD_REALS), *NOT_REAL))
        return repr(r.choice(REALS))

    def mutation(self) -> str:
        what = self.r.choice(("OBJ.n", "OBJ.k", "GI", "GF"))
        return (
            f"{what} = {self.whole()!r}" if what in ("OBJ.n", "GI") else f"{what} = {self.real()}"
        )


# -- the body -----------------------------------------------------------------------------------------


class _Body:
    """Statements over names that are bound by then: `t*` tensors, `i*` whole numbers, `k*` floats."""

    def __init__(self, r: random.Random, space: dict[str, Any]) -> None:
        self.r, self.space = r, space
        self.names = {
            "t": ["x", "y", "z"],
            "i": ["n", "n", "GI", "o.n"],
            "k": ["k", "k", "GF", "o.k"],
        }
        self.made: list[str] = []

    def fill(self, template: str, depth: int = 0) -> str:
        """A template with its places filled: {t} {i} {k} {c} by names or, less and less likely, by expressions."""
        return PLACE.sub(lambda found: self._place(found[1], depth), template)

    def _place(self, kind: str, depth: int) -> str:
        r = self.r
        if kind == "c":
            return self.fill(r.choice(CONDITIONS), depth + 1)
        if kind == "i" and r.random() < 0.2:
            return r.choice(("1", "2", "3", "4", "-1", "0"))
        if kind == "t" or r.random() < 0.25 + 0.35 * depth:
            names = self.names[kind]
            return r.choice(names[-4:] if r.random() < 0.5 else names)
        return "(" + self.fill(r.choice(INTS if kind == "i" else FLOATS), depth + 1) + ")"

    def statement(self, inside: bool = False) -> list[Statement]:
        r = self.r
        roll = r.random()
        if roll < 0.2 and not inside:
            return self._branch()
        if roll < 0.28 and not inside:
            return self._loop()
        if roll < 0.42:
            return parse(self.fill(r.choice(STATEMENTS)))
        kind, templates = r.choice((("t", TENSORS), ("t", TENSORS), ("i", INTS), ("k", FLOATS)))
        text = self.fill(r.choice(templates))
        if kind == "t" and r.random() < 0.5:  # a chain
            text = self.fill(r.choice(TENSORS).replace("{t}", f"({text})", 1))
        name = f"{kind}{10 + len(self.made)}"
        return [Statement(f"{name} = {text}")]

    def _branch(self) -> list[Statement]:
        head = f"if {self.fill('{c}')}:"
        name = f"{self.r.choice('tik')}{10 + len(self.made)}"
        templates = {"t": TENSORS, "i": INTS, "k": FLOATS}[name[0]]
        ways = [[Statement(f"{name} = {self.fill(self.r.choice(templates))}")] for _ in range(2)]
        return [Statement(blocks=[(head, ways[0]), ("else:", ways[1])])]

    def _loop(self) -> list[Statement]:
        r = self.r
        name = f"t{10 + len(self.made)}"
        first = Statement(f"{name} = {self.fill('{t}')}")
        count = r.choice(("{t}.shape[0]", "{i}", "{i}", "3"))
        head = f"for e in range(min({self.fill(count)}, 5)):"
        self.names["i"].append("e")
        step = self.fill(r.choice(TENSORS).replace("{t}", name, 1))
        self.names["i"].remove("e")
        return [first, Statement(blocks=[(head, [Statement(f"{name} = {step}")])])]

    def runs(self, statements: list[Statement]) -> bool:
        """Whether they run after what there is; then their names are bound."""
        source = "\n".join(line for one in statements for line in one.lines(0))
        before = set(self.space)
        try:
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(source, "<statement>", "exec"), self.space)
        except Exception:
            return False
        fitting = {"t": torch.Tensor, "i": int, "k": float}
        for name in sorted(set(self.space) - before):
            kind = name[0]
            if name[1:].isdigit() and kind in fitting:
                self.made.append(name)
                if isinstance(self.space[name], fitting[kind]):
                    self.names[kind].append(name)
        return True


def generate(seed: int, size: int = 6) -> Program:
    r = random.Random(seed)
    calls = _Calls(r)
    prelude = parse(f"{PRELUDE}DYNAMIC = {r.choice((None, None, None, True, True, False))}")
    space = vars(types.ModuleType("fuzzed"))
    for statement in prelude:
        exec("\n".join(statement.lines(0)), space)
    first = calls.first()
    exec(f"globals().update(dict{first})", space)
    body = _Body(r, space)
    lines: list[Statement] = []
    for _ in range(r.randint(2, size)):
        for attempt in range(TRIES):
            statements = body.statement()
            if body.runs(statements) or (attempt == 0 and r.random() < 0.03):
                lines += statements
                break
    lines += [Statement("r = []"), *(Statement(f"r.append({name})") for name in body.made)]
    rest = range(r.randint(6, 10))
    steps = [first, *(calls.mutation() if r.random() < 0.25 else calls.later() for _ in rest)]
    head = f"def f({', '.join(ARGUMENTS)}):"
    return Program(seed, prelude, head, [*lines, Statement("return r")], steps)


def main(arguments: list[str] | None = None) -> int:
    return programs.main(arguments, generate, "tests.fuzz.symbolic:jitted", 6, __doc__)


if __name__ == "__main__":
    sys.exit(main())
