"""What users do besides, for `tests.fuzz.gradients` from seed HABITS on: statements and moves.

Statements: islands without grad mode and back, leaves that the program makes, backwards and hooks inside, tensors that are detached in
place, checkpoints of a sequence. Moves: gradients that are zeros where there is none, nodes and edges, hooks on several tensors and on
nodes, results that are detached, added to those of a further call, or given a gradient of another layout or a wrong shape.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge, register_multi_grad_hook
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from .gradient_moves import Moves

T = torch.Tensor
HABITS = 20_000_000


def relit(x: T) -> T:
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = x.sin() * y
    return z + y


def leafed(x: T) -> T:
    y = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        (y.sin() * y).sum().backward()
    return x * y.grad


def inside(x: T, y: T) -> T:
    if not x.requires_grad:
        return x + y
    (g,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    return g * y


def parted(x: T, y: T) -> T:
    if not x.requires_grad:
        return x + y
    g, zero = torch.autograd.grad(x.square().sum(), (x, x[:0]), materialize_grads=True)
    return g * y + zero.sum()


def cut(x: T) -> T:
    y = x * 2
    y.detach_()
    return y + x


def watched(x: T) -> T:
    y = x * 2
    if y.requires_grad:
        y.register_hook(lambda g: g * 0.5)
    return y.sin()


def kept(x: T) -> T:
    y = x.tanh()
    if y.requires_grad:
        y.retain_grad()
    return y * x


def leaf_inside(x: T) -> T:
    y = (x.detach() * 2).requires_grad_()
    return y.sin() * x


def written(x: T, y: T) -> T:
    z = x * 1
    z[..., :1].mul_(y[..., :1])
    return z.tanh()


def written_view(x: T) -> T:
    z = x.exp()
    v = z[..., :1]
    z.mul_(0.5)
    return v * z


def quiet_write(x: T) -> T:
    z = x * 3
    with torch.no_grad():
        z[..., :1].mul_(2)
    return z + z.square()


def sequence(x: T) -> T:
    return checkpoint_sequential([torch.tanh, torch.square, torch.sin], 2, x, use_reentrant=False)  # type: ignore[no-any-return]


def quiet_checkpoint(x: T) -> T:
    with torch.no_grad():
        y = checkpoint(lambda s: s.sin() * s, x, use_reentrant=False)
    return y * x


SCOPE = {
    one.__name__: one
    for one in (
        relit, leafed, inside, parted, cut, watched, kept, leaf_inside, written, written_view, quiet_write, sequence,
        quiet_checkpoint,
    )
}  # fmt: skip
ONE = (
    "relit({x})", "leafed({x})", "cut({x})", "watched({x})", "kept({x})", "leaf_inside({x})", "written_view({x})", "quiet_write({x})",
    "sequence({x})", "quiet_checkpoint({x})",
)  # fmt: skip
TWO = ("inside({x}, {y})", "parted({x}, {y})", "written({x}, {y})")


def statement(choose: random.Random, name: str, other: str) -> str:
    """A call on the variable `name`; `other` has a shape that fits."""
    return choose.choice((*ONE, *TWO)).format(x=name, y=other)


class Habits(Moves):
    """The moves, and those of this file."""

    def kinds(self) -> list[Any]:
        own = [self.zeros, self.again_called, self.laid_out, self.wrong, self.edge, self.cleared]
        return [*super().kinds(), *own, self.names]

    def hooks(self) -> list[Any]:
        own = [self.on_node, self.on_several, self.on_leaf_node, self.detach, self.raising]
        return [*super().hooks(), *own]

    def zeros(self) -> None:
        result, weight = self.one()
        wanted = self.some([*self.leaves, *self.results])
        self.seen += torch.autograd.grad(
            result, wanted, weight, retain_graph=self.retained(), materialize_grads=True
        )

    def again_called(self) -> None:
        """A sum with the result of a further call."""
        found = self.call()
        others = [one for one in found if one.requires_grad]
        if others:
            other = self.choose.choice(others)
            self.results.append(self.one()[0].sum() * other.square().sum())
            self.weights.append(self.weight(self.results[-1]))

    def laid_out(self) -> None:
        result, weight = self.one()
        kind = self.choose.choice(("spread", "turned", "narrow"))
        if kind == "spread":
            weight = torch.ones((), dtype=weight.dtype).expand(weight.shape)
        elif kind == "turned" and weight.dim() > 1:
            weight = weight.transpose(0, -1).contiguous().transpose(0, -1)
        elif weight.dim():
            weight = torch.cat([weight, weight], -1)[..., : weight.shape[-1]]
        result.backward(weight, retain_graph=True)

    def wrong(self) -> None:
        result, weight = self.one()
        if self.choose.random() < 0.3:
            result.backward(torch.cat([weight[None], weight[None]]), retain_graph=True)

    def edge(self) -> None:
        result, weight = self.one()
        edges = [get_gradient_edge(one) for one in self.some([*self.leaves, *self.results])]
        self.seen += torch.autograd.grad(
            result, edges, weight, retain_graph=True, allow_unused=True
        )

    def cleared(self) -> None:
        leaf = self.choose.choice(self.leaves)
        if leaf.grad is not None and self.choose.random() < 0.5:
            leaf.grad.zero_()
        else:
            leaf.grad = None

    def names(self) -> None:
        result = self.one()[0]
        self.seen += [type(result.grad_fn).__name__, result.is_leaf, result._version]
        self.seen += [result.output_nr, result._is_view()]

    def on_node(self) -> None:
        at, function, before = len(self.heard), self.one()[0].grad_fn, self.choose.random() < 0.5
        self.heard.append([])
        heard = self.heard[at]
        if function is None:
            return

        def note(*given: Any) -> None:
            # A node of a compiled part has places for results without a gradient too.
            heard.extend(one.clone() for one in given[-1] if one is not None)

        self.handles.append(
            function.register_prehook(note) if before else function.register_hook(note)
        )

    def on_several(self) -> None:
        at, of = len(self.heard), self.some([*self.results, *self.leaves])
        self.heard.append([])
        _ = [one.grad_fn for one in of]  # see `hook`
        heard, mode = self.heard[at], self.choose.choice(("all", "any"))

        def note(given: Any) -> None:
            each = given if isinstance(given, (list, tuple)) else [given]
            heard.extend(None if one is None else one.clone() for one in each)

        self.handles.append(register_multi_grad_hook(of, note, mode=mode))  # type: ignore[arg-type]

    def on_leaf_node(self) -> None:
        at, leaf = len(self.heard), self.choose.choice(self.leaves)
        self.heard.append([])
        heard = self.heard[at]
        node = get_gradient_edge(leaf).node

        def note(given: Any) -> None:
            heard.extend(None if one is None else one.clone() for one in given)

        self.handles.append(node.register_prehook(note))
        self.kept.append(node)  # or its hooks go with it

    def detach(self) -> None:
        result = self.choose.choice(self.results)
        if not result._is_view() and len(self.results) > 1:
            result.detach_()
            at = next(n for n, one in enumerate(self.results) if one is result)
            del self.results[at], self.weights[at]

    def raising(self) -> None:
        """A hook that raises."""
        if self.choose.random() < 0.2:

            def fails(_g: T) -> None:
                raise RuntimeError("asked for")

            _ = [one.grad_fn for one in self.results]  # see `hook`
            self.handles.append(self.one()[0].register_hook(fails))
