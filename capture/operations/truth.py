"""Truth and identity of Values, as the language defines them.

In: Values. Out: a Python bool, with guards that keep it valid; the truth of a tensor may be a
break.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..breaks import Break
from ..data_model import attributes, value_questions
from ..exact_type import is_kind
from ..torch_models import numpy_arrays
from ..types import enums
from ..values import containers, symbolic_numbers, wrap
from ..values.containers import raises
from ..values.value import (
    Array,
    Const,
    Dict,
    DictView,
    Instance,
    Obj,
    Sequence,
    Set,
    Slice,
    Tensor,
    Value,
)
from ..values.wrap import IDENTITY_TYPES, pin

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


def value_of(m: Machine, value: Value) -> Value:
    """bool(value), as a value that a tensor may decide later."""
    if isinstance(value, Tensor):
        return value_questions.truth_value(m, value)
    return value if symbolic_numbers.is_truth(value) else Const(truth(m, value))


def inverted(m: Machine, value: Value) -> Value:
    """`not value`, as a value that a tensor may decide later."""
    found = value_of(m, value)
    if not symbolic_numbers.is_truth(found):
        return Const(not truth(m, found))
    return value_questions.data_numbers().inverted(m, found)  # type: ignore[no-any-return]


def operand(m: Machine, symbol: str, tensor: Tensor, value: Value) -> Value:
    """A truth value that a tensor decides later, as an operand beside a tensor."""
    if symbol.removesuffix("=") not in ("+", "*") or tensor.ghost.device.type != "cpu":
        return value
    return value_questions.data_numbers().as_tensor(m, value)  # type: ignore[no-any-return]


def truth(m: Machine, value: Value) -> bool:
    """bool(value)"""
    if isinstance(value, Const):
        return symbolic_numbers.truth(m, value)
    if isinstance(value, Tensor):
        return value_questions.truth(m, value)
    if isinstance(value, (Sequence, Dict, Set, DictView)):
        found = containers.length(m, value)
        return bool(found)
    if isinstance(value, Array):
        return numpy_arrays.truth(m, value)
    if not isinstance(value, (Obj, Instance)):
        return True
    for name in ("__bool__", "__len__"):
        method = attributes.special(m, value, name)
        if method is None:
            if attributes.class_attribute(m, value, name) is None:
                raise raises("TypeError: 'NoneType' object is not callable")
            continue
        beneath = enums.plain(value)
        if isinstance(beneath, Const) and enums.keeps(value, name):
            return bool(beneath.value)
        result = m.call(method, [], {})
        if not isinstance(result, Const):
            raise Break("GB112", f"{name} of an object is not a constant")
        if name == "__bool__" and type(result.value) is not bool:
            raise raises("TypeError: __bool__ should return bool")
        if name == "__len__" and not (
            type(result.value) in (int, bool) and 0 <= result.value <= sys.maxsize
        ):
            raise Break("GB112", "__len__ of an object does not give a length")
        return bool(result.value)
    return True


def _is_empty_tuple(value: Value) -> bool:
    """Whether this is the empty tuple, which is a singleton."""
    return isinstance(value, Sequence) and containers.is_exact_tuple(value) and not value.items


def identical(m: Machine, left: Value, right: Value) -> bool:
    """left is right"""
    if left is right:
        return True
    if isinstance(left, Const) and isinstance(right, Const):
        if symbolic_numbers.type_of(left) is not symbolic_numbers.type_of(right):
            return False
        if isinstance(left.value, wrap.SINGLETON_TYPES):
            return left.value is right.value
        if wrap.has_nan(left.value) and wrap.has_nan(right.value):
            raise Break("GB121", "'is' between two nan is up to Python")
        if left.value != right.value:
            return False
        raise Break("GB121", "'is' between equal constants is up to Python")
    if isinstance(left, Obj) and isinstance(right, Obj):
        pin(left)
        pin(right)
        if left.value is right.value:
            return True
        if type(left.value) is not type(right.value) or is_kind(left.value, IDENTITY_TYPES):
            return False  # their guards ensure it
    if isinstance(left, Slice) or isinstance(right, Slice):
        raise Break("GB121", "'is' of a slice")
    if isinstance(left, Const) or isinstance(right, Const):
        return False
    if type(left) is not type(right):
        return False
    if m.chosen and isinstance(left, Tensor):
        raise Break("GB121", "'is' of tensors that a branch may have replaced")
    if all(_is_empty_tuple(one) for one in (left, right)):
        return True
    # Two different Values are two objects now; if both came from outside, they may be one next
    # time.
    if left.source is not None and right.source is not None:
        if isinstance(left, Tensor) and isinstance(right, Tensor) and containers.share(left, right):
            raise Break("GB121", "'is' of two tensors that share memory")
        m.guard("distinct", None, (left.source, right.source))
    return False
