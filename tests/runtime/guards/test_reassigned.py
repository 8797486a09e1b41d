"""Another class, another `__dict__`, another body of a tensor: seen although nobody looks for them at each call.

The setters are counted; what they do is seen by whatever road they are reached, also by code that runs inside of one,
and what the garbage collector takes apart without them is seen as well.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch

from graftjit.runtime import _native
from graftjit.runtime.guards import tensor_access as tensors
from graftjit.runtime.guards.compiler import compile_rows
from graftjit.runtime.guards.mirror import tensor_spec
from graftjit.runtime.guards.rows import Row
from graftjit.runtime.guards.sources import Source

SCOPE: dict[
    str, Any
] = {}  # no check makes a dict of its own, whose version would tell that something has changed


class Node:
    level = "node"

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Other(Node):
    level = "other"


def _frame(x: Any) -> Any:
    return x


def attr(*names: str) -> Source:
    source = Source("local", None, "x")
    for name in names:
        source = Source("attr", source, name)
    return source


def remembered(rows: list[Row], x: Any) -> Any:
    """A program that has answered from memory."""
    program = compile_rows(rows, [], _frame.__code__)
    for _ in range(5):
        assert program.check((x,), SCOPE) == -1
    assert program.remembered == 1
    return program


def chain() -> Any:
    return Node(a=Node(b=Node(c=1.5)))


LEAF = [Row("equals", attr("a", "b", "c"), 1.5)]
KIND = [Row("type", attr("a", "b"), Node)]


def test_all_setters_are_counted() -> None:
    tensors.bind()
    assert _native.counted_setters() == {"classes": 1, "dicts": 1, "tensors": 1}


@pytest.mark.parametrize(
    "how", [setattr, object.__setattr__, lambda o, n, v: vars(object)[n].__set__(o, v)]
)
def test_another_class(how: Any) -> None:
    x = chain()
    program = remembered(KIND, x)
    how(x.a.b, "__class__", Other)
    assert program.check((x,), SCOPE) == 0
    how(x.a.b, "__class__", Node)
    assert [program.check((x,), SCOPE) for _ in range(4)] == [-1] * 4


class Slotted:
    __slots__ = ("__dict__",)


class Module(torch.nn.Module):
    pass


@pytest.mark.parametrize("kind", [Node, Other, Slotted, Module, type("Fresh", (Node,), {})])
def test_another_dict(kind: Any) -> None:
    own = kind()
    own.b = Node(c=1.5)
    x = Node(a=own)
    program = remembered(LEAF, x)
    old, new = vars(own), {**vars(own), "b": Node(c=2.5)}
    descriptor = next(vars(c)["__dict__"] for c in kind.__mro__ if "__dict__" in vars(c))
    for give in (
        lambda d: setattr(own, "__dict__", d),
        lambda d: object.__setattr__(own, "__dict__", d),
        lambda d: descriptor.__set__(own, d),
    ):
        give(new)
        assert program.check((x,), SCOPE) == 0
        give(old)
        assert [program.check((x,), SCOPE) for _ in range(4)] == [-1] * 4
    del own.__dict__
    assert program.check((x,), SCOPE) == 0


def test_a_property_named_dict_is_no_setter() -> None:
    class Odd(Node):
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            return {}

    own = Odd.__new__(Odd)
    own.b = Node(c=1.5)  # type: ignore[attr-defined]
    x = Node(a=own)
    program = remembered(LEAF, x)
    vars(Node)["__dict__"].__set__(own, {"b": Node(c=2.5)})
    assert program.check((x,), SCOPE) == 0


@pytest.mark.parametrize("swap", [torch.utils.swap_tensors, torch._C._swap_tensor_impl])
def test_another_body(swap: Any) -> None:
    x = Node(a=Node(b=torch.nn.Parameter(torch.zeros(2, 3))))
    program = remembered([Row("tensor", attr("a", "b"), tensor_spec(x.a.b))], x)
    other = torch.nn.Parameter(torch.zeros(3, 2))
    swap(x.a.b, other)
    assert program.check((x,), SCOPE) == 0
    swap(x.a.b, other)
    assert [program.check((x,), SCOPE) for _ in range(4)] == [-1] * 4


def test_metadata_of_a_body_that_stays() -> None:
    p = torch.nn.Parameter(torch.zeros(2, 3))
    x = Node(a=Node(b=p))
    program = remembered([Row("tensor", attr("a", "b"), tensor_spec(p))], x)
    with torch.no_grad():
        for change, back in (
            (lambda: p.requires_grad_(False), lambda: p.requires_grad_(True)),
            (lambda: p.t_(), lambda: p.t_()),
            (lambda: p.unsqueeze_(0), lambda: p.squeeze_(0)),
            (lambda: setattr(p, "data", p.data.double()), lambda: setattr(p, "data", p.data.float())),
            (lambda: setattr(p, "data", torch.zeros(2, 3).t().contiguous().t()),
             lambda: setattr(p, "data", torch.zeros(2, 3))),
            (lambda: p.detach().resize_(3, 3), lambda: None),
        ):  # fmt: skip
            change()
            assert program.check((x,), SCOPE) == (-1 if p.shape == (2, 3) and p.is_contiguous() and p.requires_grad
                                               and p.dtype is torch.float32 else 0)  # fmt: skip
            back()
            assert [program.check((x,), SCOPE) for _ in range(4)] == [-1] * 4


def test_a_leaf_that_an_operator_makes_a_result() -> None:
    p, source = (
        torch.zeros(2).requires_grad_().requires_grad_(False),
        torch.ones(2, requires_grad=True),
    )
    x = Node(a=Node(b=p))
    program = remembered([Row("tensor", attr("a", "b"), tensor_spec(p))], x)
    with torch.enable_grad():
        p.add_(source)
    assert p.requires_grad and program.check((x,), SCOPE) == 0


def test_a_check_inside_of_a_setter() -> None:
    """What the old `__dict__` held ends after the new one is in place, and before the setter is back."""
    x, said = chain(), []
    program = remembered(LEAF, x)

    class Dying:
        def __del__(self) -> None:
            said.append(program.check((x,), SCOPE))

    x.a.dying, new, own = Dying(), {"b": Node(c=2.5)}, x.a
    for _ in range(8):
        assert program.check((x,), SCOPE) == -1
    assert program.remembered == 1
    own.__dict__ = new
    assert said == [0] and program.check((x,), SCOPE) == 0
    x.a.__dict__ = {"b": Node(c=1.5)}
    assert [program.check((x,), SCOPE) for _ in range(4)] == [-1] * 4


def test_a_check_in_an_audit_hook() -> None:
    script = """
    import sys
    from tests.runtime.guards.test_reassigned import *

    x, said = chain(), []
    program = remembered(KIND, x)

    def hook(event, arguments):
        if event == "object.__setattr__" and arguments[1] == "__class__":
            said.append(program.check((x,), SCOPE))

    sys.addaudithook(hook)
    x.a.b.__class__ = Other
    assert said == [-1], said
    assert program.check((x,), SCOPE) == 0
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def whole(x: Any) -> bool:
    try:
        return x.a.b.c == 1.5
    except AttributeError:
        return False


@pytest.mark.parametrize("at", ["x", "a", "b", "knot"])
def test_what_the_collector_takes_apart(at: str) -> None:
    """The collector empties objects one by one; a finalizer that runs meanwhile may ask about them."""
    said: list[Any] = []

    def garbage() -> None:
        x = chain()
        program = remembered(LEAF, x)

        class Dying:
            __slots__ = ()  # not tracked: it ends when what holds it is emptied

            def __del__(self) -> None:
                holds = program.check((x,), SCOPE) == -1
                said.append(holds == whole(x))

        knot = Node(b=x.a.b)
        x.a.b.knot, x.knot, knot.x = knot, knot, x
        holder = {"x": x, "a": x.a, "b": x.a.b, "knot": knot}[at]
        holder.dying = Dying()
        del holder.__dict__["dying"]
        for _ in range(8):
            program.check((x,), SCOPE)
        holder.dying = Dying()
        for _ in range(4):
            assert program.check((x,), SCOPE) == -1
        assert program.remembered == 1

    garbage()
    said.clear()
    gc.collect()
    assert said == [True]


def test_what_was_collected_and_came_back() -> None:
    """The collector takes an object's `__dict__` away without its setter; a finalizer saves the object."""
    saved: list[Any] = []
    programs: list[Any] = []

    def garbage() -> None:
        x = chain()
        programs.append(remembered(LEAF, x))

        class Dying:
            __slots__ = ()

            def __del__(self) -> None:
                saved.append(x)

        x.a.b.knot = x
        x.a.last = [Dying()]
        for _ in range(8):
            programs[0].check((x,), SCOPE)
        assert programs[0].remembered == 1

    garbage()
    gc.collect()
    assert len(saved) == 1
    program = programs[0]
    assert (program.check((saved[0],), SCOPE) == -1) == whole(saved[0])
