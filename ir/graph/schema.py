"""Aliasing, writes and randomness of ATen operators, read from each schema once.

A `Plan` combines them with the operator's row in the op table. `plan_of(op)` makes and caches
plans; the tracer follows a plan for every operator that it runs, and passes and verifier ask it
what a node writes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from ..dataclass import dataclass
from .opdef import OPS, OpDef

aten = torch.ops.aten

# Operators with torch's tag of random ones that have no dropout: attention on a CPU.
_DRAWS_NOTHING = frozenset({"aten._scaled_dot_product_flash_attention_for_cpu.default"})
# In-place operators whose functional twin would copy much memory to write little: they stay writes.
_PARTIAL = (
    "index_put_ index_add_ index_copy_ index_fill_ index_reduce_ scatter_ scatter_add_"
    " scatter_reduce_ masked_scatter_ put_ _index_put_impl_ resize_ set_ map_ map2_"
)
PARTIAL_WRITES = frozenset(_PARTIAL.split())


# Operators whose results share memory with the first argument although their schema does not say
# so.
SILENT_VIEWS = frozenset(
    {
        "aten._unsafe_view.default",
        "aten.unsafe_split.Tensor",
        "aten.unsafe_split_with_sizes.default",
    }
)
# Operators that change the shape of their argument in place -> the views that have that shape.
RESHAPED: dict[str, Any] = {
    "aten.squeeze_.default": aten.squeeze.default,
    "aten.squeeze_.dim": aten.squeeze.dim,
    "aten.squeeze_.dims": aten.squeeze.dims,
    "aten.unsqueeze_.default": aten.unsqueeze.default,
    "aten.transpose_.default": aten.transpose.int,
    "aten.t_.default": aten.t.default,
    "aten.as_strided_.default": aten.as_strided.default,
}
# torch's C++ calls these for plain numbers; the dispatcher has no kernels for them.
ASKED = frozenset({"aten.size.default", "aten.stride.default"})
# Namespaces of operators that torch itself defines, partly in Python, without effects.
_NAMESPACES = (
    "aten prims prim rngprims debugprims c10d c10d_functional _c10d_functional onednn mkldnn mkl"
    " quantized _quantized quantized_decomposed export debug_mode_ops inductor higher_order"
    " profiler _native"
)
_OF_TORCH = frozenset(_NAMESPACES.split())
OURS = "graftjit"  # the namespace of ir/ops/checks.py
MESSAGES = "graftjit_distributed"  # the namespace of ir/ops/collectives.py
# torch's own
SENDING = frozenset({"c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd"})
DYNAMIC = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


@dataclass(frozen=True, slots=True)
class Plan:
    """How to trace one operator.

    kind         "pure", "view" (results share memory with argument `view_of`), "write",
                 "composite", or "library": neither torch's own nor a view, nor composite
    writes       positions (names for keyword-only) of the arguments that it writes, by its schema
    returned     per result: the written argument that it is, or None for a new tensor
    functional   the functional operator that computes what an in-place or out= operator writes, or
                 None
    random       the operator reads the random state
    dynamic      the sizes of its result depend on data
    metadata     the operator changes metadata of its argument
    one          the operator returns one result
    list_result  the result is a list of tensors
    tensors      a result is a tensor, or there are no results
    tensor_first the first argument is a tensor
    """

    op: Any
    name: str
    kind: str
    row: OpDef | None
    arguments: tuple[str, ...] = ()
    writes: tuple[int | str, ...] = ()
    returned: tuple[int | str | None, ...] = ()
    view_of: int = 0
    functional: Any = None
    random: bool = False
    dynamic: bool = False
    metadata: bool = False
    one: bool = True
    list_result: bool = False
    tensors: bool = True
    tensor_first: bool = False


def is_torchs(namespace: str) -> bool:
    """Whether operators of this namespace are torch's or graftjit's own."""
    return namespace in _OF_TORCH or namespace == OURS


def _functional_twin(op: Any) -> Any:
    """aten.add.Tensor for aten.add_.Tensor and aten.add.out; None if arguments differ."""
    schema = op._schema
    base = schema.name.split("::")[1]
    if any(argument.is_out for argument in schema.arguments):
        names = [a.name for a in schema.arguments if not a.is_out]
        packet = getattr(torch.ops.aten, base, None)
    elif base.endswith("_") and not base.endswith("__") and base not in PARTIAL_WRITES:
        names = [a.name for a in schema.arguments]
        packet = getattr(torch.ops.aten, "fill" if base == "zero_" else base[:-1], None)
        if base == "zero_":
            return torch.ops.aten.fill.Scalar
    else:
        return None
    if packet is None:
        return None
    for overload in packet.overloads():
        twin = getattr(packet, overload)
        wanted = twin._schema.arguments
        if [a.name for a in wanted] != names or any(a.alias_info for a in wanted):
            continue
        given = [a for a in schema.arguments if not a.is_out]
        if all(str(a.type) == str(b.type) for a, b in zip(given, wanted, strict=True)):
            return twin
    return None


def _kind(op: Any, name: str, writes: bool, is_view: bool) -> str:
    key = torch._C.DispatchKey.CompositeImplicitAutograd  # type: ignore[attr-defined]
    known = name in OPS or name in ASKED
    if not known and torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key):
        return "composite"
    if not is_view and not is_torchs(op.namespace):
        return "library"
    return "write" if writes else "view" if is_view else "pure"


@cache
def plan_of(op: Any) -> Plan:
    """The plan of an OpOverload."""
    schema = op._schema
    name = str(op)
    arguments = tuple(argument.name for argument in schema.arguments)
    positions: dict[str, int | str] = {
        a.name: a.name if a.kwarg_only else i for i, a in enumerate(schema.arguments)
    }
    writes: list[int | str] = []
    sets: dict[str, int | str] = {}
    read_sets: dict[str, int | str] = {}
    for argument in schema.arguments:
        info = argument.alias_info
        if info is None:
            continue
        for label in info.before_set:
            (sets if info.is_write else read_sets)[label] = positions[argument.name]
        if info.is_write:
            writes.append(positions[argument.name])
    returned: list[int | str | None] = []
    view_of = None
    # Tensor(a -> *): the result is a list of views.
    for argument in schema.arguments:
        info = argument.alias_info
        if info is not None and not info.is_write and "*" in info.after_set:
            view_of = positions[argument.name]
    for result in schema.returns:
        info = result.alias_info
        labels = list(info.before_set) + list(info.after_set) if info else []
        returned.append(next((sets[label] for label in labels if label in sets), None))
        for label in labels:
            if label in read_sets and isinstance(read_sets[label], int):
                view_of = read_sets[label]
    tags = set(op.tags)
    if name in SILENT_VIEWS:
        view_of = 0
    types = [str(result.type) for result in schema.returns]
    return Plan(
        op,
        name,
        _kind(op, name, bool(writes), view_of is not None),
        OPS.get(name),
        arguments,
        tuple(writes),
        tuple(returned),
        view_of if isinstance(view_of, int) else 0,
        _functional_twin(op) if writes and op.namespace == "aten" else None,
        torch.Tag.nondeterministic_seeded in tags and name not in _DRAWS_NOTHING,
        name not in OPS and bool(tags & DYNAMIC),  # a row's rule decides by case
        torch.Tag.inplace_view in tags or schema.name.split("::")[1] in ("resize_", "set_"),
        len(types) == 1,
        types == ["List[Tensor]"],
        any("Tensor" in kind for kind in types) or not types,
        bool(schema.arguments) and str(schema.arguments[0].type) == "Tensor",
    )
