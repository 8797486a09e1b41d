"""Operators of other libraries in a trace: `torch.library.custom_op`, and C++ extensions.

`ROUTES` of the recorder has `record` for an operator that is neither torch's own nor composite. Its
results have the metadata that its fake rule gives on tensors without data, what it writes is what
its schema declares, and torch runs its formula for the gradient like every other. A size that the
rule takes from `torch.library.get_ctx().new_dynamic_size()` is a symbol that the graph reads
(`read_numbers.read_size`). `follow_formula` tells the trace of a formula in Python: it need not be
linear.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._library.fake_impl import set_ctx_getter

from ..errors import DataDependent, Unsupported
from ..graph.nodes import Meta, Node
from ..graph.schema import Plan
from ..ops.python_kernels import fake_rule, has_rule
from ..symbolic.expr import Symbol
from ..symbolic.shape_env import Facts
from ..symbolic.symnode import SYMBOLIC, from_torch, to_torch
from .ghost import Ghost, Store, make_ghost
from .joint_graph import CustomBackward
from .recorder import ROUTES, Recorder

_FORMULA = "GeneratedBackwardFor_"  # how torch names the node of a formula in Python


def record(
    recorder: Recorder,
    plan: Plan,
    args: Any,
    kwargs: Any,
    operands: tuple[Any, ...],
    named: dict[str, Any],
) -> Any:
    """Record the operator as it is, and return its results as ghosts."""
    if not plan.tensors:
        raise Unsupported("no-tensor", f"{plan.name} returns no tensor")
    targets = {
        at: args[at] if isinstance(at, int) else kwargs.get(at)
        for at in plan.writes
        if isinstance(at, str) or at < len(args)
    }
    written = [one for target in targets.values() for one in _tensors(target)]
    for target in written:
        if recorder._overlaps(target, operands, named) - {"none"}:
            raise Unsupported("overlap", f"{plan.name} reads memory that it writes")
    meta = _outcome(recorder, plan, operands, named)
    if not plan.list_result and type(meta) is tuple and any(type(one) is tuple for one in meta):
        raise Unsupported("result", f"{plan.name} returns a list among its results")
    recorder._count_version(written)
    node = recorder.node(plan.op, operands, named, meta)
    given = [None if at is None else targets[at] for at in plan.returned]
    if plan.one and given and given[0] is not None:
        node.meta, node.alias = given[0]._node.meta, given[0]._node
        result: Any = given[0]
    elif any(one is not None for one in given):
        result = tuple(
            _result(recorder, node, at, item) if one is None else one
            for at, (one, item) in enumerate(zip(given, meta, strict=True))
        )
    else:
        result = recorder._wrap(node, meta, _fresh, None, plan.list_result)
    for target in written:
        recorder._note_write(target)
    return result


ROUTES["library"] = record


def _fresh() -> Store:
    return Store(fresh=True)


def _result(recorder: Recorder, node: Node, at: int, meta: Any) -> Any:
    if type(meta) is not Meta:
        return meta
    return make_ghost(recorder.owner, recorder._get(node, at, meta, None), meta, _fresh())


def _tensors(value: Any) -> list[Ghost]:
    """The tensors of an argument: one, a list of them, or None."""
    if isinstance(value, (list, tuple)):
        return [one for item in value for one in _tensors(item)]
    if value is not None and type(value) is not Ghost:
        raise Unsupported("number", "a number in the place of a tensor that is written")
    return [] if value is None else [value]


# -- what the results look like --------------------------------------------------------------------
def _outcome(recorder: Recorder, plan: Plan, operands: Any, named: dict[str, Any]) -> Any:
    """Meta of the result, a tuple for several, None for none."""
    rule = fake_rule(plan.op)
    if rule is not None:
        return _by_rule(recorder, plan, rule, operands, named)
    if not has_rule(plan.op):
        raise Unsupported(
            "no-fake-rule",
            f"{plan.name} has no fake rule: register one with"
            f' torch.library.register_fake("{plan.op._name}")',
        )
    return recorder.infer(plan, operands, named)


def _by_rule(
    recorder: Recorder,
    plan: Plan,
    rule: Callable[..., Any],
    operands: tuple[Any, ...],
    named: dict[str, Any],
) -> Any:
    """What a fake rule gives for ghosts of the operands, in a trace of its own."""
    outer, facts = recorder._tracer(), recorder.owner.facts
    assert outer is not None
    inner = type(outer)(plan.name, facts)
    inner.within = True
    known: dict[Node, Ghost] = {}
    sizes: list[Symbol] = []

    def enter(value: Any) -> Any:
        if type(value) is Node:
            if value not in known:
                known[value] = inner.given(value.meta)
            return known[value]
        return [enter(item) for item in value] if type(value) is tuple else value

    def context() -> _Context:
        if outer.sized is None:
            raise DataDependent(plan.name, f"{plan.name} has a size that data decide", True)
        return _Context(facts, sizes)

    def without_gradient(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad(), set_ctx_getter(context):
            return rule(*args, **kwargs)

    calling = facts.calling
    args, kwargs = enter(operands), {name: enter(value) for name, value in named.items()}
    try:
        found = inner.run(without_gradient, args, kwargs, recorder.where)
    finally:
        facts.calling = calling
    shared = {id(ghost._store) for ghost in known.values()}
    if outer.sized is not None:
        outer.sized += sizes
    return _described(plan, found, shared if all(at is None for at in plan.returned) else set())


def _described(plan: Plan, value: Any, shared: set[int]) -> Any:
    """Metas of a rule's result. `shared`: the memory of the operands."""
    if type(value) is Ghost:
        if id(value._store) in shared:
            raise Unsupported("fake-rule", f"the fake rule of {plan.name} returns an operand")
        return value._node.meta
    if isinstance(value, (list, tuple)):
        return tuple(_described(plan, item, shared) for item in value)
    return from_torch(value) if type(value) in SYMBOLIC else value


class _Context:
    """What `torch.library.get_ctx()` returns inside a fake rule."""

    def __init__(self, facts: Facts, sizes: list[Symbol]) -> None:
        self._facts, self._sizes = facts, sizes

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:
        """A size that data decide, within these limits."""
        hint = 64 if max is None else (min + max) // 2
        size = self._facts.symbol("int", hint, ("data",), min, max)
        self._sizes.append(size)
        return to_torch(size, self._facts)

    create_unbacked_symint = new_dynamic_size


# -- gradients -------------------------------------------------------------------------------------
def follow_formula(results: Any) -> None:
    """Note what a formula in Python is given, and the gradients that it makes, each time that the
    trace runs it."""
    nodes = {one.grad_fn for one in _tensors(results) if one.grad_fn is not None}
    for node in nodes:
        if type(node).__name__.startswith(_FORMULA):
            node.register_hook(_Followed(node.next_functions))


class _Followed:
    """A hook of the formula's node."""

    def __init__(self, edges: Any) -> None:
        self._wants = [edge[0] is not None for edge in edges]

    def __call__(self, made: tuple[Any, ...], given: tuple[Any, ...]) -> None:
        ghosts = [one for one in given if type(one) is Ghost]
        if ghosts:
            owner = ghosts[0]._owner
            wanted = [one for one, wants in zip(made, self._wants, strict=False) if wants]
            owner.withheld |= any(one is None for one in wanted)
            found = [one for one in wanted if type(one) is Ghost]
            owner.custom.append(CustomBackward(_nodes(ghosts), _nodes(found)))


def _nodes(ghosts: list[Ghost]) -> tuple[Node, ...]:
    return tuple([ghost._node for ghost in ghosts])
