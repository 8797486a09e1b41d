"""Float32 values that matter only after rounding to 16 bits, and their cheaper forms on a GPU.

Every use of such a value keeps relative errors (products, quotients, the sum of a softmax) and ends
in a cast to a narrow float. An error of a few units of float32 then changes a result only where the
exact value lies almost in the middle between two narrow floats. `codegen.triton.body` asks for the
text of each value.
"""

from __future__ import annotations

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
    does not.
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
        if value.op == "add":
            one, other = (self.values[arg] for arg in value.args)
            if one.op == "const" and one.attr == 1.0 and to in _ONE_PLUS.get(other.op, ()):
                return f"_one_plus_{other.op}(v{other.args[0]})"
        return None
