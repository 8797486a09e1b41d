"""Float32 values that matter only after rounding to 16 bits, and their cheaper forms on a GPU.

Every use of such a value keeps relative errors (products, quotients, the sum of a softmax) and ends
in a cast to a narrow float. An error of a few units of float32 then changes a result only where the
exact value lies almost in the middle between two narrow floats. `codegen.triton.body` asks for the
text of each value.
"""

from __future__ import annotations

from collections import Counter

import torch

from ..loops import online_reductions
from ..loops.loop_nest import LoopNest
from . import dialect

EXACT = torch.float32
_KEEPING = ("mul", "div", "neg", "abs", "where")
_DIGITS = {torch.bfloat16: 8, torch.float16: 11, EXACT: 24}
_FORMS = {"sigmoid": "_sigmoid_16({0})", "exp": "_exp_16({0})"}
# 1 + f(x) takes an absolute error of 1 ulp, for which fewer instructions suffice
_ONE_PLUS = {"erf": (torch.bfloat16,), "tanh": (torch.bfloat16, torch.float16)}


class Rounding:
    """`to`: for each value the most precise dtype to which its uses round it; `EXACT` if some use
    does not. `unused`: values that only such forms replace.
    """

    def __init__(self, nest: LoopNest) -> None:
        self.values = nest.values
        pairs = online_reductions.find(nest).values()
        # sums of exp(x - the maximum of x), which are at least 1
        self.sums = frozenset(pair.number for pair in pairs if pair.what == "exp")
        found: list[torch.dtype | None] = [None] * len(nest.values)

        def use(number: int, to: torch.dtype | None) -> None:
            to = to if to in _DIGITS else EXACT
            found[number] = max(found[number] or to, to, key=_DIGITS.__getitem__)

        for store in nest.stores:
            for number in store.needs:
                use(number, EXACT)
        for number, value in reversed(list(enumerate(nest.values))):
            keeps = value.op in _KEEPING or number in self.sums
            for arg in value.args:
                use(arg, value.dtype if value.op == "cast" else found[number] if keeps else EXACT)
        self.to = [one or EXACT for one in found]
        # functions of which only 1 + f(x) is used, and how often
        within = Counter(self._one_plus(number) for number in range(len(nest.values)))
        uses: Counter[int | None] = Counter(a for value in nest.values for a in value.args)
        uses.update(number for store in nest.stores for number in store.needs)
        self.unused = frozenset(one for one, count in within.items() if count == uses[one])

    def text(self, number: int) -> str | None:
        """The cheaper form of a value; None: it has none, or needs to be exact."""
        value, to = self.values[number], self.to[number]
        if to == EXACT or value.dtype != torch.float32:
            return None
        if value.op in _FORMS:
            return _FORMS[value.op].format(f"v{value.args[0]}")
        if value.op == "div" and value.args[1] in self.sums:
            # the same for all elements of a row: one division
            return f"v{value.args[0]} * {dialect.inverse(f'v{value.args[1]}')}"
        function = self._one_plus(number)
        if function is not None:
            one = self.values[function]
            return f"_one_plus_{one.op}(v{one.args[0]})"
        return None

    def _one_plus(self, number: int) -> int | None:
        """The function of a value that is 1 + f(x) and has a form of its own."""
        value = self.values[number]
        if value.op != "add" or value.dtype != torch.float32:
            return None
        for one, other in (value.args, value.args[::-1]):
            known = self.values[one].op == "const" and self.values[one].attr == 1.0
            if known and self.to[number] in _ONE_PLUS.get(self.values[other].op, ()):
                return other
        return None
