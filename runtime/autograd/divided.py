"""A backward in segments by leaves: the gradients of some leaves are accumulated before the others
are computed.

The reducer of a DistributedDataParallel module sends the gradients of a bucket when the last of
them is accumulated. An autograd node returns all its gradients at its end, so a compiled part would
send all buckets then. `watch(joint, segments, tell)` therefore gives a program a chain of nodes in
place of its node, if its leaves belong to a reducer or `segments` says so. The first node is the
one that the results have. It runs the first slice of the backward program
(`runtime.executor.slices`), and returns the gradients of the first group of leaves and a token. The
token is the gradient of an empty result of the next node; it carries the values that the next slice
reads. Autograd's engine accumulates gradients before it runs another node.

Everything else is that of the undivided node: saved tensors and hooks are the first node's, and
where that runs the calls again under autograd, the other nodes return what it has found.
"""

from __future__ import annotations

import bisect
import copy
import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from ..executor.lower import consuming
from ..executor.slices import Passing, Slices, can_slice, divided, finals
from . import leaf_hooks, reducers
from .joint_program import JointProgram, Kept, node_of
from .result_nodes import function_of

# None: as reducers need it; a number of segments; or the bytes of each, of which the last repeats.
Segments = int | tuple[int, ...] | None
# Whether segment k is full that has `part` bytes, of `whole` so far: is_full(k, part, whole).
IsFull = Callable[[int, int, int], bool]
# For each wanted input the limits of its reducer.
Key = tuple[reducers.Limits | None, ...]
Tell = Callable[[str, int], None]
MOST = 64  # segments

# Programs that may be called with leaves of a reducer that is made later.
_waiting: weakref.WeakKeyDictionary[JointProgram, Tell] = weakref.WeakKeyDictionary()


def watch(joint: JointProgram, segments: Segments, tell: Tell) -> None:
    """Divide the backward of a program as `segments` says, at once or when a reducer is made.

    `tell(name, n)` is called when it has been divided into n segments. A program that writes to
    inputs with a history is not divided.
    """
    if not joint.plan.results or joint.plan.dirty or segments == 1:
        return
    if segments is not None or reducers.exist():
        joint._node, joint.by_leaves = Divided(joint, segments, tell), None
    else:
        _waiting[joint] = tell


def _divide_waiting() -> None:
    for joint, tell in list(_waiting.items()):
        joint._node, joint.by_leaves = Divided(joint, None, tell), None
    _waiting.clear()


reducers.on_new(_divide_waiting)


class Divided:
    """Makes the node of a program, or the chain of nodes in its place."""

    def __init__(self, joint: JointProgram, segments: Segments, tell: Tell) -> None:
        self._joint, self._segments, self._tell = joint, segments, tell
        self._whole: Any = joint._node
        self._wanted = [joint._edges[at] for at in joint.plan.wanted]
        # None: undivided
        self._chains: dict[Key, Sliced | None] = {}

    def __call__(self, *arguments: Any) -> Any:
        key: Key = ()
        if self._segments is None:
            key = tuple([reducers.limits_of(arguments[at]) for at in self._wanted])
            if not any(key):
                return self._whole(*arguments)
        known = key in self._chains
        chain = self._chains[key] if known else self._chain(key, arguments)
        if known and chain is not None and chain.is_stale():
            chain = self._chain(key, arguments)
        self._chains[key] = chain
        return self._whole(*arguments) if chain is None else chain(arguments)

    def _chain(self, key: Key, arguments: Sequence[Any]) -> Sliced | None:
        """The chain for leaves of reducers with these limits (`key`; empty: for all leaves)."""
        program: Any
        try:
            with torch.no_grad():
                program, places = self._joint.program_for(())
        # the backward gives the reason, if it comes to one
        except Exception:
            return None
        if not can_slice(program):
            return None
        last = finals(program.spec)
        final = [None if place is None else last[place] for place in places]
        leaves = [
            (final[number], arguments[at].nbytes)
            for number, at in enumerate(self._wanted)
            if final[number] is not None and (key[number] if key else arguments[at].is_leaf)
        ]
        ends = _ends(leaves, self._is_full(key, leaves))
        if not ends:
            return None
        groups = [len(ends) if at is None else bisect.bisect_left(ends, at) for at in final]
        device = arguments[self._wanted[groups.index(0)]].device
        chain = Sliced(self._joint, program, groups, final, device)
        self._tell(self._joint.plan.name, chain.n)
        return chain

    def _is_full(self, key: Key, leaves: Sequence[tuple[Any, int]]) -> IsFull:
        segments, total = self._segments, sum(size for _, size in leaves)
        if isinstance(segments, int):
            return lambda k, _, whole: whole * segments >= total * (k + 1)
        limits = next(one for one in key if one) if segments is None else segments
        return lambda k, part, _: part >= limits[min(k, len(limits) - 1)]


def _ends(leaves: Sequence[tuple[Any, int]], is_full: IsFull) -> list[int]:
    """The steps after which the program is cut, for (final step, bytes) of each leaf: in the order
    of the steps, leaves fill a segment until it is full, as a reducer fills buckets."""
    ends: list[int] = []
    part = whole = 0
    order = sorted(leaves)
    for number, (at, size) in enumerate(order):
        part, whole = part + size, whole + size
        follows = number + 1 < len(order) and order[number + 1][0] > at
        if follows and len(ends) < MOST - 1 and is_full(len(ends), part, whole):
            ends.append(at)
            part = 0
    return ends


class Chain:
    """A chain of nodes in place of one. The first one runs the whole backward."""

    def __init__(
        self,
        joint: JointProgram,
        groups: Sequence[int],
        final: Sequence[int | None],
        device: torch.device,
    ) -> None:
        """`groups`, `final`: for each wanted input the number of its node, and its place among
        those of this node (None: before the others)."""
        self.joint, self.groups, self.n = joint, groups, 1 + max(groups)
        self._device = device
        rows = [
            (group, -1 if at is None else at, number)
            for number, (group, at) in enumerate(zip(groups, final, strict=True))
        ]
        # the wanted inputs of each node
        self.members = [
            [joint.plan.wanted[number] for group, _, number in sorted(rows) if group == k]
            for k in range(self.n)
        ]
        self._positions = [[joint._edges[at] for at in inputs] for inputs in self.members]
        self._first = _first_of(self)
        self._nodes = [self._first._node, *(_node_of(self, k) for k in range(1, self.n))]

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        """The results, with the nodes as their history."""
        tokens: list[Any] = []
        for k in range(self.n - 1, -1, -1):
            inputs = [arguments[at] for at in self._positions[k]]
            made = self._nodes[k](*inputs, *tokens, arguments if k == 0 else None)
            tokens = [made]
        return tokens[0]

    def token(self) -> torch.Tensor:
        return torch.empty(0, device=self._device)

    def program_for(self, missing: tuple[int, ...]) -> tuple[Any, Sequence[int | None]]:
        """The backward for results of which those have no gradient, and for each wanted input the
        position of its gradient."""
        program, places = self.joint.program_for(missing)
        return consuming(program), places


class Sliced(Chain):
    """The nodes of a divided backward: each of them runs a slice."""

    def __init__(
        self,
        joint: JointProgram,
        program: Any,
        groups: Sequence[int],
        final: Sequence[int | None],
        device: torch.device,
    ) -> None:
        """`final`: for each wanted input the step of `program` after which its gradient stays."""
        super().__init__(joint, groups, final, device)
        self._program, self._spec = program, program.spec
        self._slices: dict[tuple[int, ...], Slices] = {}

    def is_stale(self) -> bool:
        """Whether kernels have replaced the operators of the program."""
        return self._program.spec is not self._spec

    def program_for(self, missing: tuple[int, ...]) -> tuple[Any, Sequence[int | None]]:
        """The slices of the backward for results of which those have no gradient, and for each
        wanted input the position of its gradient."""
        program: Any
        program, places = self.joint.program_for(missing)
        found = self._slices.get(missing)
        if found is None:
            groups = [self.n - 1] * len(program.spec.outputs)
            for place, group in zip(places, self.groups, strict=True):
                if place is not None:
                    groups[place] = min(groups[place], group)
            found = self._slices[missing] = divided(program, groups, self.n)
        return found, places


class Passage:
    """What a token carries from node to node: a run of the slices, or the gradients of all inputs
    if they have been found in another way (`found`).

    `first`, `node`, `gradients`, `kept`: the first node's program, that node, and what it was
    called with, for the case that a slice fails.
    """

    __slots__ = ("first", "found", "gradients", "kept", "node", "passing", "places", "seen")

    passing: Passing
    first: Any
    node: Any
    gradients: Sequence[Any]
    kept: Kept
    places: Mapping[int, int]  # wanted input -> the position of its gradient

    def __init__(self, found: dict[int, Any] | None = None) -> None:
        self.found = found
        self.seen: dict[int, torch.Tensor] = {}  # copies, only where they are checked

    def next(self, inputs: Sequence[int]) -> dict[int, Any]:
        """The gradients of the next node's inputs."""
        if self.found is not None:
            return self.found
        failed: Exception | None = None
        try:
            made = self.passing.next()
        except Exception as raised:
            failed = raised
        if failed is None:
            places = self.places
            return {at: made[places[at]] for at in inputs if at in places}
        returned = self.first._without(self.node, self.gradients, failed, "failed", self.kept)
        token = returned[self.first._token_at]
        self.found = {} if token is None else token.passage.found
        return self.found or {}

    def compare(self, found: Mapping[int, Any]) -> None:
        """Compare gradients of inputs, with those of earlier nodes, with eager's: the largest one
        says which errors are small."""
        if self.found is None and self.first._twin is not None and not self.node.layouts:
            plan = self.first.plan
            self.seen |= {at: one.clone() for at, one in found.items() if one is not None}
            given = [self.gradients[at] for at in plan.results]
            by_input = [self.seen.get(at) for at in range(plan.n_tensors)]
            self.first._twin.compare(self.node.begun, given, by_input)


class FurtherBackward(BackwardCFunction):
    """A node after the first one of a chain."""

    chain: Chain
    number: int

    def apply(self, token: Any) -> Any:
        """The gradients of this node's inputs. Autograd's engine calls this."""
        inputs, asked = self.chain.members[self.number], self.needs_input_grad[:-1]
        if token is None:
            leaf_hooks.hold_back(self, (None,) * len(inputs))
            return (None,) * (len(asked) + 1)
        passage = token.passage
        found = passage.next(inputs)
        # no second reference: a leaf takes a gradient that only the engine holds without a copy
        returned = [found.pop(at, None) for at in inputs]
        returned = [one if wanted else None for one, wanted in zip(returned, asked, strict=False)]
        passage.compare(dict(zip(inputs, returned, strict=True)))
        if any(one is None for one in returned):
            leaf_hooks.hold_back(self, returned)
        if len(asked) > len(inputs):
            returned.append(token if asked[-1] else None)
        return (*returned, None)


def _node_of(chain: Chain, number: int) -> Any:
    """The function that makes a further node."""

    def forward(node: Any, *_inputs: Any) -> torch.Tensor:
        node.materialize_grads = False
        return chain.token()

    name, body = chain.joint.node_name, {"chain": chain, "number": number}
    return function_of(forward, type(name, (FurtherBackward,), body))


class _First(JointProgram):
    """The program of a chain's first node. Its arguments are the inputs of the first group, the
    token, and the arguments of the node in whose place the chain is, in a tuple."""

    chain: Chain

    def forwards(self, node: Any, *arguments: Any) -> Any:
        return super().forwards(node, *arguments[-1])

    def _built(self, missing: tuple[int, ...]) -> Any:
        run, places = self.chain.program_for(missing)
        rows = [
            (at, place)
            for at, place in zip(self.plan.wanted, places, strict=True)
            if place is not None
        ]
        pairs: list[tuple[int, Any]] = [
            (self._edges[at], place) for at, place in rows if at in self._edges
        ]
        made = (run, dict(rows)), [*pairs, (self._token_at, "token")]
        return self._backwards.setdefault(missing, made)  # type: ignore[arg-type]

    @property
    def _token_at(self) -> int:
        return len(self._edges)

    def _run(
        self, run: Any, arguments: list[Any], node: Any, gradients: Sequence[Any], kept: Kept
    ) -> Any:
        program, places = run
        if not isinstance(program, Slices):
            found = program(arguments)
            rest = {at: found[place] for at, place in places.items() if at not in self._edges}
            return {**dict(enumerate(found)), "token": self._carrying(Passage(rest))}
        passage = Passage()
        passage.passing, passage.places = program.begin(arguments), places
        passage.first, passage.node, passage.gradients, passage.kept = self, node, gradients, kept
        made: dict[Any, torch.Tensor] = passage.passing.next()  # type: ignore[assignment]
        if self._twin is not None:
            passage.seen = {at: made[places[at]].clone() for at in self._edges if at in places}
        made["token"] = self._carrying(passage)
        return made

    def _carrying(self, passage: Passage) -> torch.Tensor:
        token = self.chain.token()
        token.passage = passage  # type: ignore[attr-defined]
        return token

    def edge_of(self, at: int) -> int:
        return self._edges.get(at, self._token_at)

    def behind(self, function: Any, at: int) -> Any:
        members = self.chain.members
        for some in members[1:] if at not in self._edges else ():
            if at in some:
                return function.next_functions[some.index(at)][0]
            function = function.next_functions[-1][0]
        return function

    def _returned(self, node: Any, found: Mapping[int, Any]) -> Sequence[Any]:
        first = {at: one for at, one in found.items() if at in self._edges}
        returned = list(super()._returned(node, first))
        rest = {at: one for at, one in found.items() if at not in self._edges}
        returned[self._token_at] = self._carrying(Passage(rest))
        return tuple(returned)


def _first_of(chain: Chain) -> Any:
    """The program of the first node: a copy of the undivided one with the methods of `_First`."""
    first: Any = copy.copy(chain.joint)
    kind: Any = type(chain.joint)
    first.__class__ = _first_class(kind)
    first.chain, first._backwards = chain, {}
    first._edges = {at: number for number, at in enumerate(chain.members[0])}
    first._node = node_of(first)
    return first


@functools.cache
def _first_class(kind: Any) -> Any:
    return type(f"First{kind.__name__}", (_First, kind), {})
