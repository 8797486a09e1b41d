"""The key of a kept plan: everything that a graph's plan depends on, as texts.

`texts(graph)` describes the graph at ATen level (operators, arguments with their types, metadata,
aliases, writes and outputs, the lines that reports name) and the world: graftjit's code that plans,
torch, Python, the processor, and the settings of torch that planning reads. Equal texts mean an
equal plan. Raises NotKept for a graph that the texts would not describe completely: sizes that are
expressions, and values that are not plain.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ...ir.graph.devices import gpus_of
from ...ir.graph.nodes import Graph, Meta, Node
from ...ir.passes.rewriter import FOLD_LIMIT
from ...runtime import own_files
from ...runtime.process import hardware
from ...runtime.process.session import SESSION
from ...runtime.version import VERSION
from ..triton import devices

FORMAT = "plan 3"  # raise it when the meaning of kept plans changes
# namespaces of torch and graftjit: the names of their operators say what they do
OPERATORS = ("aten", "prims", "graftjit")

# The fields of a graph whose values are in the texts, and those that no plan depends on: the torch
# level, the origins of tensors, facts about the capture, and fields that only graphs with
# expressions or gradients use.
SAID = (
    "mutates", "random", "overlaps", "apart", "written", "joined", "consumes", "own", "spends",
    "spent",
)  # fmt: skip
UNSAID = (
    "name", "calls", "call_outputs", "constants", "sources", "slow_ops", "grad_where", "facts",
    "joint", "late", "values", "backward_end", "forward_end", "required",
)  # fmt: skip


class NotKept(Exception):
    """A graph, or a plan, that the texts would not describe completely."""


def texts(graph: Graph) -> tuple[str, ...]:
    """The texts of the key, for a machine that can have kernels."""
    return (FORMAT, _graph(graph), *_world(), _gpus(graph))


def _gpus(graph: Graph) -> str:
    """The facts about GPUs that a plan depends on; empty without GPUs."""
    found = gpus_of(graph)
    if not found:
        return ""
    reason = devices.why_not(found)
    if reason:
        raise NotKept(reason)
    return devices.world(found)


def _world() -> tuple[str, ...]:
    return (
        VERSION,
        _code(),
        sys.version,
        torch.__version__,
        str(torch.version.git_version),
        hardware.cpu().identity,
        hardware.cpu().isa,
        str(hardware.narrow_mkl()),
        _precision(),
        str(torch.get_default_dtype()),
        str(torch._C._get_mkldnn_enabled()),  # type: ignore[attr-defined]
        str(torch.are_deterministic_algorithms_enabled()),
    )


def _precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError as error:  # it was set by its old name and by its new one
        raise NotKept(str(error)) from error


@functools.cache
def _code() -> str:
    """Names, sizes and times of the files that plan, which is also how Python detects old
    bytecode.
    """
    try:
        return "\n".join(_files())
    except OSError as error:
        raise NotKept("the files of graftjit cannot be seen") from error


def _files() -> list[str]:
    found = []
    for package in ("codegen", "ir", "runtime"):
        for entry in _below(own_files.PACKAGES[package]):
            facts = entry.stat()
            if facts.st_mtime_ns > SESSION.began:
                raise NotKept("a file of graftjit was changed after this process had begun")
            found.append(f"{package} {entry.name} {facts.st_size} {facts.st_mtime_ns}")
    return found


def _below(folder: str) -> Iterator[os.DirEntry[str]]:
    """The sources in a folder and in its sub-packages, in the order of their names."""
    with os.scandir(folder) as entries:
        sorted_entries = sorted(entries, key=lambda one: one.name)
    for entry in sorted_entries:
        if entry.name.endswith((".py", ".h")):
            yield entry
        elif entry.is_dir() and not entry.name.startswith("__"):
            yield from _below(entry.path)


# --- the graph ---


def _graph(graph: Graph) -> str:
    if graph.symbols or graph.numbers or graph.needs_grad:
        raise NotKept("sizes that are not known, or gradients")
    numbers: dict[Node, int] = {}
    lines = []
    for node in (*graph.inputs, *graph.nodes):
        lines.append(_node(node, numbers))
        numbers[node] = len(numbers)
    lines.append(f"return {[numbers[node] for node in graph.outputs]}")
    lines += [f"{name} {_settled(getattr(graph, name))}" for name in SAID]
    return "\n".join(lines)


def _settled(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value


def _node(node: Node, numbers: Mapping[Node, int]) -> str:
    where = node.where
    place = "" if where is None else f"{where.file.rsplit('/', 1)[-1]}:{where.line}"
    alias = "" if node.alias is None else str(numbers[node.alias])
    args = _value(node.args, numbers)
    kwargs = ",".join([f"{k}={_value(v, numbers)}" for k, v in node.kwargs.items()])
    target = _target(node)
    return f"{node.op} {target} {args} {kwargs} {_meta(node.meta)} {alias} {node.name} {place}"


def _target(node: Node) -> str:
    target = node.target
    if node.op == "call":
        if not isinstance(target, torch._ops.OpOverload) or target.namespace not in OPERATORS:
            raise NotKept(f"{target}")
        return str(target)
    if node.op == "constant":
        return _constant(target) if node.args == ("own",) else ""
    return _value(target, {})


def _constant(tensor: torch.Tensor) -> str:
    """A small constant that only the graph holds, by value, because passes compute with it; "" if
    it is larger.
    """
    if tensor.numel() > FOLD_LIMIT:
        return ""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise NotKept("a constant that is no plain memory")
    data = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return bytes(data.flatten().view(torch.uint8).tolist()).hex()


def _meta(meta: Any) -> str:
    if type(meta) is Meta:
        return f"{meta.dtype}{meta.shape}{meta.stride}{meta.offset}{meta.device}"
    if type(meta) is tuple:
        return f"({';'.join(map(_meta, meta))})"
    if meta is None:
        return "None"
    raise NotKept(f"{meta!r}")


def _value(value: Any, numbers: Mapping[Node, int]) -> str:
    kind = type(value)
    if kind is Node:
        return f"%{numbers[value]}"
    write = _PLAIN.get(kind)
    if write is not None:
        return write(value)
    if kind is tuple:
        return f"({','.join([_value(item, numbers) for item in value])})"
    if kind is list:
        return f"[{','.join([_value(item, numbers) for item in value])}]"
    raise NotKept(f"a {kind.__name__}")


def _float(value: float) -> str:
    if value != value:  # no text holds the bits of a nan
        raise NotKept("nan")
    return repr(value)


_PLAIN: dict[type, Callable[[Any], str]] = {
    int: repr,
    bool: repr,
    float: _float,
    str: repr,
    type(None): repr,
    torch.dtype: str,
    torch.device: repr,
    torch.layout: str,
    torch.memory_format: str,
}
