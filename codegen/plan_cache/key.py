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
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ...ir.graph.devices import gpus_of
from ...ir.graph.nodes import Graph, Meta, Node
from ...ir.passes.rewriter import FOLD_LIMIT
from ...ir.symbolic.expr import is_symbolic
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
        str(hardware.slow_mkl()),
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
    return "\n".join(_Text().lines(graph, SAID))


_PLAIN: dict[type, Callable[[Any], str]] = {
    int: repr,
    bool: repr,
    float: repr,
    str: repr,
    type(None): repr,
    torch.dtype: str,
    torch.device: repr,
    torch.layout: str,
    torch.memory_format: str,
}


class GraphText:
    """Writes one graph: a line for each input and node (operator, arguments, metadata, alias), with
    values by their places, and one for each field. What the text has of constants, and of values
    that are not plain, is up to a subclass."""

    def __init__(self) -> None:
        self._numbers: dict[Node, int] = {}

    def lines(self, graph: Graph, fields: Iterable[str]) -> list[str]:
        """The lines of a graph, with those of its fields."""
        found = []
        for node in (*graph.inputs, *graph.nodes):
            found.append(self.node(node))
            self._numbers[node] = len(self._numbers)
        found.append(f"return {[self._numbers[node] for node in graph.outputs]}")
        return found + [f"{name} {_settled(getattr(graph, name))}" for name in fields]

    def node(self, node: Node) -> str:
        alias = "" if node.alias is None else str(self._numbers[node.alias])
        args = self.value(node.args)
        kwargs = ",".join([f"{name}={self.value(one)}" for name, one in node.kwargs.items()])
        return f"{node.op} {self.target(node)} {args} {kwargs} {self.meta(node.meta)} {alias}"

    def target(self, node: Node) -> str:
        raise NotImplementedError

    def other(self, value: Any) -> str:
        """The text of a value that is not plain; a nan is none, since no text holds its bits."""
        raise NotImplementedError

    def meta(self, meta: Any) -> str:
        if type(meta) is Meta:
            return f"{meta.dtype}{meta.shape}{meta.stride}{meta.offset}{meta.device}"
        if type(meta) is tuple:
            return f"({';'.join(map(self.meta, meta))})"
        return "None" if meta is None else self.other(meta)

    def value(self, value: Any) -> str:
        kind = type(value)
        if kind is Node:
            return f"%{self._numbers[value]}"
        write = _PLAIN.get(kind)
        if write is not None and value == value:
            return write(value)
        if kind is tuple:
            return f"({','.join(map(self.value, value))})"
        if kind is list:
            return f"[{','.join(map(self.value, value))}]"
        return self.other(value)


def _settled(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value


class _Text(GraphText):
    """With the names and lines that reports and plans have."""

    def node(self, node: Node) -> str:
        where = node.where
        place = "" if where is None else f"{where.file.rsplit('/', 1)[-1]}:{where.line}"
        return f"{super().node(node)} {node.name} {place}"

    def meta(self, meta: Any) -> str:
        # The plan depends on what is known of such a size, which its name does not say.
        if type(meta) is Meta and is_symbolic((meta.shape, meta.stride, meta.offset)):
            raise NotKept("sizes that are not known")
        return super().meta(meta)

    def target(self, node: Node) -> str:
        target = node.target
        if node.op == "call":
            if not isinstance(target, torch._ops.OpOverload) or target.namespace not in OPERATORS:
                raise NotKept(f"{target}")
            return str(target)
        if node.op == "constant":
            return _constant(target) if node.args == ("own",) else ""
        return self.value(target)

    def other(self, value: Any) -> str:
        raise NotKept(f"a {type(value).__name__}")


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
