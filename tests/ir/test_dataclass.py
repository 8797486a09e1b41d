"""The house's dataclasses are those of the standard library, but for when their methods are made."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from graftjit.ir import dataclass as ours


def _family(make):
    @make(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 2
        note: str = dataclasses.field(default="", compare=False, repr=False)

    @make(frozen=True, slots=True, kw_only=True)
    class Event:
        at: int = 7
        tags: tuple = dataclasses.field(default_factory=tuple)

    @make(frozen=True, slots=True, kw_only=True)
    class Break(Event):
        code: str

    @make(eq=False, slots=True)
    class Node:
        op: str
        inputs: list = dataclasses.field(default_factory=list)

    @make(slots=True, unsafe_hash=True)
    class One:
        value: float

    @make(frozen=True, slots=True, weakref_slot=True, eq=False)
    class Held:
        value: int

    @make(slots=True)
    class Ready:
        value: int
        double: int = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            self.double = 2 * self.value

        def __repr__(self) -> str:
            return "ready"

    @make(frozen=True)
    class Loose:
        value: int = 3

        def __eq__(self, other: object) -> bool:
            return True

    return [Point, Event, Break, Node, One, Held, Ready, Loose]


_WAYS = [
    lambda P, E, B, N, O, H, R, L: (P(1), P(1, 3), P(y=4, x=1, note="n"), P(1) == P(1, note="m")),
    lambda P, E, B, N, O, H, R, L: (hash(P(1, 2)), {P(1): 1}[P(1, 2, "n")], P(1) == (1, 2), P(1) != P(2)),
    lambda P, E, B, N, O, H, R, L: (E(), E(at=1) == E(at=1), B(code="c"), B(code="c", tags=(1,)).at),
    lambda P, E, B, N, O, H, R, L: (N("a"), N("a") == N("a"), N("a").inputs is N("a").inputs),
    lambda P, E, B, N, O, H, R, L: (O(float("nan")), hash(O(1.5)), O(1.0) == O(1)),
    lambda P, E, B, N, O, H, R, L: (H(1).__weakref__, len({H(1), H(1)}), H.__slots__),
    lambda P, E, B, N, O, H, R, L: (R(4).double, R(4), R(4) == R(4), R.__hash__, L(1) == 3, hash(L(1))),
    lambda P, E, B, N, O, H, R, L: (dataclasses.replace(P(1), y=9), dataclasses.asdict(B(code="x"))),
    lambda P, E, B, N, O, H, R, L: ([f.name for f in dataclasses.fields(B)], dataclasses.is_dataclass(P)),
    lambda P, E, B, N, O, H, R, L: (copy.copy(P(1, 5)), copy.deepcopy(P(1, 5, "n")).note, copy.copy(N("q"))),
    lambda P, E, B, N, O, H, R, L: (P.__match_args__, B.__match_args__, P.__slots__, B.__slots__),
    lambda P, E, B, N, O, H, R, L: (L.value, L().value, vars(L(5)), repr(L()), L.__qualname__),
    lambda P, E, B, N, O, H, R, L: P(),
    lambda P, E, B, N, O, H, R, L: P(1, 2, "n", 4),
    lambda P, E, B, N, O, H, R, L: B("c"),
    lambda P, E, B, N, O, H, R, L: setattr(P(1), "x", 2),
    lambda P, E, B, N, O, H, R, L: delattr(L(1), "value"),
    lambda P, E, B, N, O, H, R, L: hash(R(1)),
    lambda P, E, B, N, O, H, R, L: P(1) < P(2),
]  # fmt: skip


@pytest.mark.parametrize("way", range(len(_WAYS)))
def test_as_the_standard_library(way):
    def described(make):
        try:
            return repr(_WAYS[way](*_family(make)))
        except Exception as error:
            return type(error), str(error)

    assert described(ours.dataclass) == described(dataclasses.dataclass)


@ours.dataclass(frozen=True, slots=True)
class Kept:
    name: str
    size: int = 1


def test_pickled():
    assert pickle.loads(pickle.dumps(Kept("a", 4))) == Kept("a", 4)


def test_init_is_compiled_at_the_first_instance():
    point = _family(ours.dataclass)[0]
    late = point.__init__
    point(1)
    assert point.__init__ is not late
    assert point.__init__.__code__.co_varnames[:3] == ("self", "x", "y")


def test_recursive_repr():
    node = _family(ours.dataclass)[3]("a")
    node.inputs.append(node)
    assert repr(node).endswith("Node(op='a', inputs=[...])")
