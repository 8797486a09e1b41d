"""The moves of `tests.fuzz.gradients` from seed MOVES on, and the statements of its programs that checkpoint.

A program computes some parts in checkpoints, one in another, over variables and over what a closure reads, with random numbers. Its
arguments are leaves, have a history or are views. Then the seed chooses what is done with the results: backward of one or some, with
respect to all or to some inputs (`inputs=`), kept or freed, batched, differentiated twice and three times; hooks on results, views
and leaves, set and removed; results and leaves that are written to, under autograd or past it; views and sums of results.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge, register_multi_grad_hook

from graftjit.runtime.errors import GraftError

T = torch.Tensor
MOVES = 10_000_000
_is_batched = torch._C._functorch.is_legacy_batchedtensor  # type: ignore[attr-defined]
_END = "use_reentrant=False)"
CHECKPOINTED = (
    "checkpoint(lambda s: (s.sin() * s).tanh(), {x}, " + _END,
    "checkpoint(lambda s: s.exp() * {y}, {x} * 0.2, " + _END,
    "checkpoint(lambda s, t: F.gelu(s * t) + t, {x}, {y}, " + _END,
    "checkpoint(lambda s: F.dropout(s.sigmoid(), 0.4) * s, {x}, " + _END,
    "checkpoint(lambda s, t: torch.rand_like(s) * s * t, {x}, {y}, " + _END,
    "checkpoint(lambda s: s * checkpoint(lambda u: u.tanh().square(), s.sin(), " + _END + ", {x}, " + _END,
    "checkpoint(lambda s: F.dropout(s, 0.3) * checkpoint(lambda u: F.dropout(u * u, 0.5), s, " + _END
    + ", {x}, " + _END,
    "checkpoint(lambda s: checkpoint(lambda u: u * {y}, s.cos(), " + _END + ".sigmoid(), {x}, " + _END,
    "checkpoint(lambda s, t: (s * t, s.square()), {x}, {y}, " + _END + "[0]",
    "sum(checkpoint(lambda s, t: (s * t.sin(), s * t), {x}, {y}, " + _END + ")",
    "checkpoint(quiet, {x}, " + _END,
)  # fmt: skip
CUSTOM = (
    "checkpoint(lambda s: Square.apply(s.sin()) * s, {x}, " + _END,
    "checkpoint(Swish.apply, {x}, " + _END,
)
RANDOM = ("F.dropout({x}, 0.3)", "{x} * torch.rand_like({x})")
WRITES = (
    lambda r: r.mul_(0.5), lambda r: r.add_(1), lambda r: r[..., :1].zero_(), lambda r: r.sin_(),
    lambda r: r.detach().mul_(1.5),
)  # fmt: skip
VIEWS = (
    lambda r: r.reshape(-1), lambda r: r.transpose(0, -1), lambda r: r[..., :1], lambda r: r.unsqueeze(0),
    lambda r: r.sum(), lambda r: r * r.detach(), lambda r: r * r.sin(),
)  # fmt: skip


def statement(choose: random.Random, name: str, other: str, custom: bool) -> str:
    """A checkpointed part, or random numbers, of the variable `name`; `other` has a shape that fits."""
    text = choose.choice((*CHECKPOINTED, *RANDOM, *CUSTOM * custom))
    return text.format(x=name, y=other)


def given_as(seed: int) -> str:
    """What the arguments are: leaves, tensors with a history, or views of these; programs write to the latter two."""
    return random.Random(seed + 3).choice(("leaf", "leaf", "history", "view"))


def handed(seed: int, leaves: list[T]) -> list[T]:
    """What the program is called with."""
    kind = given_as(seed)
    if kind == "leaf":
        return leaves
    return [(x * 1)[:] if kind == "view" else x * 1 for x in leaves]


def has_bent(text: str) -> bool:
    """Whether a program has backwards that are not linear: where a second derivative comes to one twice, autograd adds up the
    gradients first, and a compiled part does not (tests/test_footguns.py)."""
    return "Product" in text or "Clamped" in text


class Moves:
    """What is done with the results of a program, and what is seen of it."""

    def __init__(self, function: Callable[..., Any], seed: int, leaves: list[T], text: str) -> None:
        # torch's vmap refuses random numbers, also those of a checkpoint
        self.random = "dropout" in text or "rand" in text
        self.bent = has_bent(text)
        # What a checkpoint computes again has the history of the results that it stands for in eager mode:
        # a second derivative reaches their `retain_grad` (tests/test_footguns.py).
        self.again = "checkpoint" in text
        self.choose = random.Random(seed + 2)
        self.generator = torch.Generator().manual_seed(seed)
        torch.default_generator.manual_seed(seed)
        given = handed(seed, leaves)
        self.function, self.given, self.kept = function, given, list[Any]()
        results = self.call()
        results += given if given_as(seed) != "leaf" else []
        self.leaves = [x for x in leaves if x.requires_grad]
        self.results = [one for one in results if one.requires_grad]
        self.weights = [self.weight(one) for one in self.results]
        self.seen: list[Any] = [one.detach().clone() for one in results]
        # By hook: the order among leaves is autograd's (tests/test_footguns.py).
        self.heard: list[list[T | None]] = []
        self.handles: list[Any] = []
        self.seen.append(torch.rand(2))

    def call(self) -> list[T]:
        """The results of a call."""
        found = self.function(*self.given)
        return [*(found if isinstance(found, tuple) else [found])]

    def weight(self, one: T) -> T:
        return torch.randn(one.shape, generator=self.generator, dtype=one.dtype)

    def run(self) -> list[Any]:
        if not self.results:
            return self.seen
        kinds, hooks = self.kinds(), self.hooks()
        # Not both: a second derivative may reach a hook through a saved result, and computes what a
        # write has changed again (tests/test_footguns.py).
        orders: list[Any] = [] if self.bent else [self.further, self.further]
        orders += [] if self.random else [self.batched]
        kinds += self.choose.choice((hooks, orders))
        for _ in range(self.choose.randrange(2, 8)):
            move = self.choose.choice(kinds)
            try:
                move()
            except (RuntimeError, GraftError) as error:
                self.seen.append(type(error).__name__)
                if move not in (self.write, self.write_leaf, self.view):
                    break  # a part of the gradients may be there
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # results have gradients by retain_grad and inputs=
            kept = [x.grad for x in (*self.leaves, *self.results)]
        kept = [None if x is None or _is_batched(x) else x for x in kept]  # left by `batched`
        last = [one.detach().clone() for one in (*self.results, *self.leaves)]
        return [*self.seen, *(one for some in self.heard for one in some), *kept, *last]

    def kinds(self) -> list[Any]:
        """The moves of every program."""
        return [self.backward, self.backward, self.gradient, self.together, self.view]

    def hooks(self) -> list[Any]:
        """Those of programs that are differentiated once."""
        return [
            *(self.hook, self.unhook, self.retain, self.accumulated, self.write, self.write_leaf)
        ]

    def some(self, of: list[T]) -> list[T]:
        return self.choose.sample(of, self.choose.randrange(1, len(of) + 1))

    def one(self) -> tuple[T, T]:
        at = self.choose.randrange(len(self.results))
        return self.results[at], self.weights[at]

    def retained(self) -> bool:
        return self.choose.random() < 0.7

    def backward(self) -> None:
        result, weight = self.one()
        reached = self.leaves if self.again else [*self.leaves, *self.results]
        inputs = self.choose.choice((None, None, self.leaves, reached))
        inputs = inputs and self.some(inputs)
        result.backward(weight, retain_graph=self.retained(), inputs=inputs)

    def together(self) -> None:
        ats = self.some(list(range(len(self.results))))  # type: ignore[arg-type]
        some = [self.results[at] for at in ats], [self.weights[at] for at in ats]  # type: ignore[call-overload]
        torch.autograd.backward(*some, retain_graph=self.retained())

    def gradient(self) -> None:
        result, weight = self.one()
        wanted, unused = self.some([*self.leaves, *self.results]), self.choose.random() < 0.8
        self.seen += torch.autograd.grad(
            result, wanted, weight, retain_graph=self.retained(), allow_unused=unused
        )

    def further(self) -> None:
        """The second derivative, and the third; retained, since eager frees values of the forward here."""
        found, order = self.one()[0].square().sum(), self.choose.choice((2, 2, 3))
        for _ in range(order):
            found = torch.autograd.grad(found, self.leaves, create_graph=True, allow_unused=True)
            self.seen += [None if g is None else g.detach().clone() for g in found]
            parts = [(g * g).sum() for g in found if g is not None and g.requires_grad]
            if not parts:
                return
            found = sum(parts) * 0.5

    def batched(self) -> None:
        result, weight = self.one()
        weights = torch.stack([weight, weight.cos()])
        self.seen += torch.autograd.grad(
            result,
            self.leaves,
            weights,
            is_grads_batched=True,
            retain_graph=True,
            allow_unused=True,
        )

    def hook(self) -> None:
        at, on = len(self.heard), self.choose.choice([*self.results, *self.results, *self.leaves])
        self.heard.append([])
        _ = on.grad_fn  # torch crashes at a hook on a view whose base was written to since
        half = self.choose.random() < 0.5

        def heard(g: T | None) -> T | None:
            # None at a leaf that a node leads to without a gradient
            self.heard[at].append(None if g is None else g.clone())
            return g * 0.5 if half and g is not None else None

        self.handles.append(on.register_hook(heard))

    def accumulated(self) -> None:
        at, leaf = len(self.heard), self.choose.choice(self.leaves)
        self.heard.append([])
        heard = self.heard[at]
        self.handles.append(
            leaf.register_post_accumulate_grad_hook(lambda p: heard.append(p.grad.clone()))
        )

    def unhook(self) -> None:
        if self.handles:
            self.handles.pop(self.choose.randrange(len(self.handles))).remove()

    def retain(self) -> None:
        self.one()[0].retain_grad()

    def write(self) -> None:
        result, how = self.one()[0], self.choose.choice(WRITES)
        if result.dim():
            how(result)

    def write_leaf(self) -> None:
        leaf = self.choose.choice(self.leaves)
        with torch.no_grad():
            leaf.mul_(1.25)

    def view(self) -> None:
        result, how = self.one()[0], self.choose.choice(VIEWS)
        if result.dim():
            self.results.append(how(result))
            self.weights.append(self.weight(self.results[-1]))


class Habits(Moves):
    """The moves from seed HABITS on: zeros in place of missing gradients, nodes and edges, hooks on several tensors and on nodes, results
    that are detached, added to those of a further call, or given a gradient of another layout or a wrong shape."""

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
