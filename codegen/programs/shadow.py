"""The shadow check: under GRAFTJIT_CHECK each run of a compiled graph is compared with the replay
of its torch-level calls.

`shadowed(program, replay, ...)` is a program that runs both. It raises CheckError, with the names
of the graph's kernels, if they differ by more than `TOLERANCE` and by more than eager's own values
move when its inputs move by a rounding. For programs with a backward see `codegen.training.Twin`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ...ir.graph.cost_model import metas, product
from ...ir.graph.effects import reads, root, sends_any, writes
from ...ir.graph.nodes import Graph, Meta, Node
from ...ir.graph.schema import plan_of
from ...ir.ops.python_kernels import in_python
from ...ir.trace.autocast_cache import cached_cast
from ...runtime.autograd import rng_state
from ...runtime.errors import CheckError
from ...runtime.events.loggers import PACKAGES
from .sensitivity import Sensitivity

Slack = Callable[[], torch.Tensor | None]

# dtype -> allowed (relative, absolute by the largest element) error; fused sums add in another
# order than eager's
TOLERANCE: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-9, 1e-12),
    torch.float32: (3e-4, 3e-5),
    torch.bfloat16: (5e-2, 2e-2),
    torch.float16: (1e-2, 4e-3),
}
# Integers and bools may depend on a comparison of floats: this part of the elements may differ.
FLIPS = 1e-3


def shadowed(
    program: Callable[..., Any], replay: Callable[..., Any], graph: Graph, kernels: Sequence[str]
) -> Callable[..., Any]:
    """The program, then the calls on copies of its inputs and random states, and a comparison."""
    allowed, devices = tolerance(graph), rng_state.drawn_from(graph)
    tail = f"; kernels: {', '.join(kernels) or 'none'}"
    cancels, names = bool(graph.written) or graph.spends, _names(graph)
    blank = _not_known(graph)

    def compare(
        what: str, ours: torch.Tensor, theirs: torch.Tensor, scale: float, slack: Slack
    ) -> None:
        ours, theirs = ours.detach(), theirs.detach()
        difference = differs(ours, theirs, allowed, scale)
        if difference:
            difference = differs(ours, theirs, allowed, scale, slack())
        if difference:
            raise CheckError(
                f"{what} of the compiled graph {graph.name} is not what eager gives",
                expected=_short(theirs),
                found=f"{_short(ours)}; {difference}{tail}",
            )

    def checked(*inputs: Any) -> Any:
        if devices and threading.active_count() > 1:
            not_compared(graph, "it draws random numbers, and other threads may draw in between")
            return program(*inputs)
        # A backward among the calls must end at the inputs, as it does in the trace.
        apart = [_without_history(one) for one in inputs] if graph.spends else inputs
        kept, twins = list(apart), list(apart)
        for at in graph.written:
            kept[at], twins[at] = copied(inputs[at]), copied(inputs[at])
        before, scale = rng_state.states(devices), largest(inputs) if cancels else 0.0
        found = program(*inputs)
        after = rng_state.states(devices)

        def eager(given: list[Any]) -> list[torch.Tensor]:
            rng_state.put_back(before)
            with torch.set_grad_enabled(graph.spends):
                results = replay(*given)
            return [*results, *(given[at] for at in graph.written)]

        try:
            expected = eager(twins)
            drawn = rng_state.states(devices)
            sensitivity = Sensitivity(eager, kept, copied)
            ours = [*found, *(inputs[at] for at in graph.written)]
            for number, (what, one, other) in enumerate(zip(names, ours, expected, strict=True)):
                if number not in blank:
                    compare(what, one, other, scale, partial(sensitivity.slack, number, expected))
        finally:
            rng_state.put_back(after)
        if any(not torch.equal(a, b) for (_, a), (_, b) in zip(after, drawn, strict=True)):
            raise CheckError(
                f"the compiled graph {graph.name} has not drawn the random numbers"
                f" that eager draws{tail}"
            )
        return found

    return checked


def _names(graph: Graph) -> list[str]:
    """The names of the compared values, for error texts."""
    return [
        *(f"result {at}" for at in range(len(graph.outputs))),
        *(f"input {at}, which is written to by a call" for at in graph.written),
    ]


def _not_known(graph: Graph) -> set[int]:
    """The positions, among the compared values, of those that differ from run to run."""
    unknown = arbitrary(graph)
    compared = [*graph.outputs, *(graph.inputs[at] for at in graph.written)]
    return {at for at, node in enumerate(compared) if node in unknown}


def arbitrary(graph: Graph) -> set[Node]:
    """The nodes whose values depend on memory that no node had written to by then."""
    found: set[Node] = set()
    for node in graph.nodes:
        written = set(map(root, writes(node)))
        found -= written
        if node.op == "call" and node.target.overloadpacket in _BLANK:
            found.add(root(node))
        elif not found.isdisjoint(map(root, reads(node))):
            row = plan_of(node.target).row if node.op == "call" else None
            # Operators that create a tensor read sizes alone.
            if row is None or row.kind != "create":
                found |= {root(node), *written}
    return {node for node in (*graph.inputs, *graph.nodes) if root(node) in found}


_BLANK = (
    torch.ops.aten.empty, torch.ops.aten.empty_like, torch.ops.aten.empty_strided,
    torch.ops.aten.new_empty, torch.ops.aten.new_empty_strided, torch.ops.aten.empty_permuted,
)  # fmt: skip


def largest(inputs: Sequence[Any]) -> float:
    """The largest finite element of the float inputs.

    Updates and gradients that cancel to nothing have errors of the size of the terms that
    cancelled.
    """
    floats = [t.detach() for t in inputs if isinstance(t, torch.Tensor) and t.is_floating_point()]
    kept = [t[t.isfinite()].abs().max() for t in floats if bool(t.isfinite().any())]
    return max(map(float, kept), default=0.0)


def _without_history(value: Any) -> Any:
    """A tensor with a history as a leaf over the same memory; any other value itself."""
    if not isinstance(value, torch.Tensor) or value.grad_fn is None:
        return value
    return value.detach().requires_grad_()


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor over a copy of its whole memory; a leaf, if it requires a gradient."""
    bare = tensor.detach()
    length = bare.untyped_storage().nbytes() // bare.element_size()
    with torch.no_grad():
        memory = torch.as_strided(bare, (length,), (1,), 0).clone()
        copy = memory.as_strided(bare.shape, bare.stride(), bare.storage_offset())
    return copy.requires_grad_(tensor.requires_grad)


def can_compare(graph: Graph) -> bool:
    """Whether the calls can run beside the program. Halves of a joint program have no calls:
    `codegen.training.Twin` compares those.
    """
    if not graph.calls:
        return False
    if has_effects(graph):
        return False
    written = {root(one) for node in graph.nodes for one in writes(node)}
    if any(one.op == "constant" for one in written):
        not_compared(graph, "it writes to a tensor that is baked into it")
        return False
    # autocast caches casts by the tensor object: a copy of the weight has no entry
    if any(root(node.args[0]) in written for node in graph.nodes if node.target is cached_cast):
        not_compared(graph, "it writes to a weight whose cast autocast keeps")
        return False
    return True


def has_effects(graph: Graph) -> bool:
    """Whether a kernel of the graph may have effects that show twice: a Python function, or a
    message to another process."""
    if sends_any(graph.nodes):
        not_compared(graph, "it sends messages to other processes")
        return True
    found = any(one.op == "call" and in_python(one.target) for one in graph.nodes)
    if found:
        not_compared(graph, "a kernel in it is a Python function of the program's")
    return found


def not_compared(graph: Graph, why: str) -> None:
    """Log once per graph and reason what GRAFTJIT_CHECK does not compare."""
    if (graph.name, why) not in _SAID:
        _SAID.add((graph.name, why))
        PACKAGES["codegen"].warning("GRAFTJIT_CHECK does not compare graph %s: %s", graph.name, why)


_SAID: set[tuple[str, str]] = set()


def tolerance(graph: Graph) -> tuple[float, float]:
    """The tolerance of the narrowest float dtype in the graph.

    A float64 result may be the sum of float32 values, each with the error of a float32 function.
    TF32 keeps ten bits, and its roundings pass through all later layers: it counts as bfloat16.
    """
    found = (0.0, 0.0)
    for node in (*graph.inputs, *graph.nodes):
        if _in_tf32(node):
            found = max(found, TOLERANCE[torch.bfloat16])
        metas = node.meta if isinstance(node.meta, tuple) else (node.meta,)
        for meta in metas:
            if isinstance(meta, Meta):
                found = max(found, TOLERANCE.get(meta.dtype, found))
    return found


def _in_tf32(node: Node) -> bool:
    """Whether a library of a GPU may round the factors of this float32 product to TF32."""
    name = product(node)
    if not name or not any(
        one.dtype == torch.float32 and one.device.type == "cuda" for one in metas(node.meta)
    ):
        return False
    if "convolution" in name:
        return bool(torch.backends.cudnn.allow_tf32)
    return torch.get_float32_matmul_precision() != "highest"


def differs(
    ours: torch.Tensor,
    theirs: torch.Tensor,
    allowed: tuple[float, float] = (0.0, 0.0),
    scale: float = 0.0,
    slack: torch.Tensor | None = None,
) -> str:
    """What differs, in words; empty if nothing does.

    `allowed` is the least error to accept; its absolute part is in units of the largest element, or
    of `scale` if that is larger. `slack` is added for each element (`sensitivity`).
    """
    for name in ("shape", "dtype", "device"):
        if getattr(ours, name) != getattr(theirs, name):
            return f"{name} {getattr(ours, name)} in place of {getattr(theirs, name)}"
    if ours.numel() == 0:
        return ""
    strides = [
        (a, b) for a, b, n in zip(ours.stride(), theirs.stride(), ours.shape, strict=True) if n > 1
    ]
    if any(a != b for a, b in strides):
        return f"strides {ours.stride()} in place of {theirs.stride()}"
    if ours.dtype not in TOLERANCE:
        if ours.is_complex():
            return "" if torch.allclose(ours, theirs, 1e-4, 1e-4, equal_nan=True) else "values"
        other = ours != theirs
        wrong = int((other if slack is None else other & (slack.to(ours.device) == 0)).sum())
        return f"{wrong} elements differ" if wrong > max(1, FLIPS * ours.numel()) else ""
    relative, absolute = max(allowed, TOLERANCE[ours.dtype])
    loose = torch.zeros(()) if slack is None else slack
    return _float_difference(
        ours.double(), theirs.double(), relative, absolute, scale, loose.to(ours.device)
    )


def _float_difference(
    ours: Any, theirs: Any, relative: float, absolute: float, scale: float, slack: torch.Tensor
) -> str:
    finite = theirs.isfinite()
    same_kind = (ours.isnan() == theirs.isnan()) & ((ours == theirs) | finite | theirs.isnan())
    same_kind |= slack.isinf()
    if not bool(same_kind.all()):
        return f"{int((~same_kind).sum())} elements are nan or infinite in one of them only"
    if not bool(finite.any()):
        return ""
    scale = max(scale, float(theirs[finite].abs().max()))
    error = (ours - theirs).abs()
    wrong = finite & ~(error <= relative * theirs.abs() + absolute * max(scale, 1e-30) + slack)
    if not bool(wrong.any()):
        return ""
    return f"{int(wrong.sum())} elements differ, by up to {float(error[wrong].max()):.3g}"


def _short(tensor: torch.Tensor) -> str:
    values = tensor.detach().flatten()[:4].tolist()
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)} {values}"
