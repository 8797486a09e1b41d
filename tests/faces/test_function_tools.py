"""What takes functions takes jitted functions: inspect, typing, functools, copy, pickle, torch's own tools."""

from __future__ import annotations

import abc
import copy
import dataclasses
import doctest
import functools
import inspect
import pickle
import pydoc
import types
import typing
import unittest.mock
from typing import Any

import pytest
import torch
from torch import Tensor

import graftjit


def plain(x: Tensor, scale: float = 2.0) -> Tensor:
    """Scales."""
    return torch.relu(x) * scale + 1


jitted = graftjit.jit(plain)
named = graftjit.jit(lambda x: torch.relu(x) + 1)


@graftjit.jit
def by_name(x: Tensor) -> Tensor:
    return x + 1


X = torch.tensor([-1.0, 2.0])


def test_it_is_a_function_for_who_asks() -> None:
    assert inspect.isfunction(jitted)
    assert inspect.isroutine(jitted)
    assert isinstance(jitted, types.FunctionType)
    assert callable(jitted)
    assert not inspect.isclass(jitted)
    assert not inspect.isgeneratorfunction(jitted)
    assert type(jitted) is graftjit.jit.__globals__["JitFunction"]


@pytest.mark.parametrize(
    "ask",
    [inspect.signature, inspect.getsource, inspect.getdoc, inspect.getfile, inspect.getfullargspec,
     inspect.getclosurevars, inspect.unwrap, typing.get_type_hints, pydoc.plain],
    ids=lambda ask: ask.__name__,
)  # fmt: skip
def test_what_is_asked_of_it(ask: Any) -> None:
    if ask is pydoc.plain:
        assert "Scales." in pydoc.plain(pydoc.render_doc(jitted))
    else:
        assert ask(jitted) == ask(plain)


def test_copies_and_pickles() -> None:
    assert copy.copy(by_name) is by_name
    assert copy.deepcopy([by_name])[0] is by_name
    assert pickle.loads(pickle.dumps(by_name)) is by_name


def test_wrappers() -> None:
    wrapped = functools.wraps(jitted)(lambda x: jitted(x))
    assert (wrapped.__name__, wrapped.__doc__) == ("plain", "Scales.")
    torch.testing.assert_close(wrapped(X), plain(X))
    dispatched = functools.singledispatch(by_name)
    dispatched.register(int, lambda x: x - 1)
    assert dispatched(3) == 2
    torch.testing.assert_close(dispatched(X), X + 1)
    abstract = type("Abstract", (abc.ABC,), {"f": abc.abstractmethod(graftjit.jit(lambda s: 1))})
    with pytest.raises(TypeError, match="abstract"):
        abstract()
    mocked = unittest.mock.create_autospec(by_name)
    with pytest.raises(TypeError):
        mocked()


def test_methods() -> None:
    class Holder:
        @graftjit.jit
        def method(self, x: Tensor) -> Tensor:
            return x * 3

        @property
        @graftjit.jit
        def size(self) -> int:
            return 3

    names = [name for name, _ in inspect.getmembers(Holder, inspect.isfunction)]
    assert "method" in names
    assert inspect.ismethod(Holder().method)
    torch.testing.assert_close(Holder().method(X), X * 3)
    assert Holder().size == 3


@pytest.mark.parametrize("function", [jitted, named], ids=["def", "lambda"])
def test_fx(function: Any) -> None:
    traced = torch.fx.symbolic_trace(function)
    assert any(node.target is torch.relu for node in traced.graph.nodes)
    torch.testing.assert_close(traced(X), function(X))


def test_fx_below_a_module() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return by_name(x) * 2

    traced = torch.fx.symbolic_trace(Net())
    torch.testing.assert_close(traced(X), (X + 1) * 2)


def test_torchscript() -> None:
    torch.testing.assert_close(torch.jit.script(jitted)(X), plain(X))
    torch.testing.assert_close(torch.jit.trace(by_name, (X,))(X), X + 1)


def test_transforms_and_checks() -> None:
    x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(jitted, (x,))
    torch.testing.assert_close(torch.func.vmap(by_name)(X), X + 1)
    grad = torch.func.grad(lambda x: jitted(x).sum())(X)
    torch.testing.assert_close(grad, torch.tensor([0.0, 2.0]))


def test_doctest_finds_its_examples() -> None:
    def documented(x: Any) -> Any:
        """
        >>> documented(1)
        2
        """
        return x + 1

    jitted = graftjit.jit(documented)
    (found,) = doctest.DocTestFinder().find(jitted, "documented", globs={"documented": jitted})
    assert doctest.DocTestRunner(verbose=False).run(found) == (0, 1)


def test_dataclasses() -> None:
    @dataclasses.dataclass
    class Part:
        weight: Tensor
        function: Any = by_name
        many: list[Tensor] = dataclasses.field(default_factory=graftjit.jit(lambda: [X + 1]))

        @graftjit.jit
        def apply(self, x: Tensor) -> Tensor:
            return self.function(x * self.weight) + self.many[0]

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Part) and torch.equal(self.weight, other.weight)

        __eq__ = graftjit.jit(__eq__)

    part = Part(X)
    torch.testing.assert_close(part.apply(X), X * X + 1 + X + 1)
    assert part == Part(X.clone())
    assert part != Part(X + 1)
    assert dataclasses.replace(part, weight=X).function is by_name
    assert dataclasses.asdict(part)["function"] is by_name


def test_a_jitted_frame_asks_of_another() -> None:
    """The answers are the same where the question is compiled."""

    def ask(x: Tensor) -> Any:
        return x + 1, isinstance(by_name, types.FunctionType), callable(by_name), by_name(x)

    for _ in range(2):
        for ours, theirs in zip(graftjit.jit(ask)(X), ask(X), strict=True):
            torch.testing.assert_close(ours, theirs)
