"""Calls with wrong arguments inside of `try`: the handler of the frame gets plain Python's exception."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

from graftjit import jit

X = torch.ones(2)
CALLS: dict[str, Any] = {
    "round": lambda x: round(x),
    "round of places": lambda x: round(x, 1),
    "abs of two": lambda x: abs(x, 1),
    "pow of three": lambda x: pow(x, 2, 3),
    "divmod": lambda x: divmod(x, 2),
    "a fact of more": lambda x: x.element_size("q"),
    "a fact by its class": lambda x: torch.Tensor.element_size(x, "q"),
    "a fact by name": lambda x: torch.Tensor.is_floating_point(x, foo=1),
    "size": lambda x: x.size("q"),
    "grad mode": lambda x: torch.is_grad_enabled(3),
    "a dtype": lambda x: torch.get_default_dtype("q"),
    "floordiv": lambda x: operator.ifloordiv(3, "q"),
    "power": lambda x: operator.ipow(3, "q"),
    "shift": lambda x: operator.ilshift(1.5, 2),
    "xor": lambda x: operator.ixor([], {}),
    "made by a module": lambda x: torch.nn.Linear(2, 3, foo=1)(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_handler_gets_what_plain_python_raises(name: str) -> None:
    call = CALLS[name]

    def fn(x: torch.Tensor) -> Any:
        try:
            return x + 1, call(x)
        except (TypeError, IndexError, RuntimeError) as error:
            return x + 2, type(error), str(error)

    jitted = jit(fn)
    for _ in range(2):
        assert str(jitted(X)) == str(fn(X))


def test_statements_that_assign_name_themselves() -> None:
    def fn(x: torch.Tensor) -> list[Any]:
        found: list[Any] = [x * 2]
        number, items = 3, [1]
        try:
            number //= "q"  # type: ignore[operator]
        except TypeError as error:
            found.append(str(error))
        try:
            number **= "q"  # type: ignore[operator]
        except TypeError as error:
            found.append(str(error))
        try:
            items -= {}  # type: ignore[operator]
        except TypeError as error:
            found.append(str(error))
        return found

    assert str(jit(fn)(X)) == str(fn(X))


def test_a_memory_error_keeps_its_arguments() -> None:
    def fn(x: torch.Tensor) -> Any:
        error = MemoryError("no room", 3)
        return x + 1, error, error.args

    assert str(jit(fn)(X)) == str(fn(X))
