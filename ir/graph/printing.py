"""Graphs as text: typed Python, one line per node with its type and the user's line; and torch.fx.

`graph.text()`, reports, GRAFTJIT_DEBUG and golden tests show the text. `to_fx` is for exchange with
other tools; torch.fx is imported only there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..location import Location
from .interpreter import substitute
from .layout import is_contiguous
from .nodes import Call, Graph, Meta, Node, Ref

SHORT = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "b8",
    "complex64": "c64",
    "complex128": "c128",
    "complex32": "c32",
}
COLUMN = 64
# Gives the text of a line of the program.
LineOf = Callable[[Location], str]


def dtype_name(dtype: torch.dtype) -> str:
    """f32 for torch.float32."""
    name = str(dtype).removeprefix("torch.")
    return SHORT.get(name, name)


def type_text(meta: Any) -> str:
    """f32[64, 512], with strides if they are not row-major and the device if it is not the CPU."""
    if isinstance(meta, tuple):
        return "(" + ", ".join(type_text(item) for item in meta) + ")"
    if not isinstance(meta, Meta):
        return "None"
    text = f"{dtype_name(meta.dtype)}[{', '.join(map(str, meta.shape))}]"
    if not is_contiguous(meta.shape, meta.stride):
        text += f" strides {list(meta.stride)}"
    if meta.device.type != "cpu":
        text += f" {meta.device}"
    return text


def value_text(value: Any) -> str:
    """An argument as Python."""
    if isinstance(value, Node):
        return value.name
    if isinstance(value, Ref):
        return f"v{value.index}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(value_text, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(map(value_text, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {value_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        return (
            f"slice({value_text(value.start)}, {value_text(value.stop)}, {value_text(value.step)})"
        )
    if isinstance(value, torch.device):
        return repr(str(value))
    return repr(value)


def _arguments(args: Any, kwargs: dict[str, Any]) -> str:
    return ", ".join([*map(value_text, args), *(f"{k}={value_text(v)}" for k, v in kwargs.items())])


def place_text(where: Location | None) -> str:
    """net.py:14; empty for an unknown location."""
    return "" if where is None else f"{os.path.basename(where.shown)}:{where.line}"


def _place(where: Location | None) -> str:
    return "" if where is None else f"  {place_text(where)}"


def _under_lines(steps: Iterable[tuple[Location | None, str]], line_of: LineOf | None) -> list[str]:
    """Indented lines of the steps.

    With `line_of`, the steps of one line of the program follow that line as a comment, and do not
    name the location themselves.
    """
    if line_of is None:
        return [f"    {text}" for _, text in steps]
    found: list[str] = []
    last = None
    for where, text in steps:
        line = "" if where is None else line_of(where)
        if line and line != last:
            found.append(f"    # {place_text(where)}  {line}".rstrip())
            last = line
        place = _place(where)
        if line and place:
            text = text.removesuffix(place).removesuffix("  #").rstrip()
        found.append(f"    {text}")
    return found


def node_text(node: Node) -> str:
    """t3 = aten.addmm(bias, x, t2)  # f32[64, 512]  net.py:14"""
    if node.op == "constant":
        code = f"{node.name} = constant({type_text(node.meta)})"
    elif node.op == "get":
        code = f"{node.name} = {node.args[0].name}[{node.target}]"
    else:
        target = str(node.target).removesuffix(".default")
        code = f"{node.name} = {target}({_arguments(node.args, node.kwargs)})"
    alias = "" if node.alias is None else f"  shares {node.alias.name}"
    return f"{code:<{COLUMN}}  # {type_text(node.meta)}{alias}{_place(node.where)}"


def _heads(graph: Graph, names: Iterable[str]) -> list[str]:
    """One line per input: name, type, and origin in the program."""
    sources = [*graph.sources, *[None] * (len(graph.inputs) - len(graph.sources))]
    return [
        f"    {name},  # {type_text(node.meta)}" + ("" if source is None else f"  {source}")
        for name, node, source in zip(names, graph.inputs, sources, strict=True)
    ]


def graph_text(graph: Graph, line_of: LineOf | None = None) -> str:
    """The ATen level. `line_of` gives the text of a line of the program, for comments."""
    heads = _heads(graph, (node.name for node in graph.inputs))
    body = _under_lines([(node.where, node_text(node)) for node in graph.nodes], line_of)
    outputs = ", ".join(node.name for node in graph.outputs)
    flags = [
        word
        for word, on in (
            ("needs grad", graph.needs_grad),
            (f"writes inputs {graph.written}", graph.mutates),
            ("random", graph.random),
        )
        if on
    ]
    title = f"def {graph.name}({'' if heads else '):'}" + (
        f"  # {', '.join(flags)}" if flags else ""
    )
    signature = [title, *heads, "):"] if heads else [title]
    return "\n".join(
        [*signature, *body, f"    return ({outputs}{',' * (len(graph.outputs) == 1)})"]
    )


def target_text(target: Any) -> str:
    """The name of a torch function as a program writes it."""
    name = str(getattr(target, "__name__", repr(target)))
    owner = getattr(target, "__objclass__", None)
    if owner is not None:
        return f"Tensor.{name}"
    if isinstance(getattr(target, "__self__", None), torch.Tensor):
        return f"Tensor.{name}"
    qualified = str(getattr(target, "__qualname__", name))
    module = str(getattr(target, "__module__", None) or "")
    if qualified.startswith("_VariableFunctions"):
        return f"torch.{name}"
    if module == "torch._C._nn":
        return f"torch.nn.functional.{name}"
    return f"{module}.{qualified}" if module else qualified


def _types(value: Any, values: Sequence[Node]) -> list[str]:
    """The type texts of the values in a result."""
    if isinstance(value, Ref):
        return [type_text(values[value.index].meta)] if value.index < len(values) else []
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return [text for item in value for text in _types(item, values)]
    return []


def call_text(call: Call, values: Sequence[Node] = ()) -> str:
    """v3 = torch.nn.functional.linear(v0, v1)  # f32[64, 512]  net.py:14

    The types are shown only if `values` are given.
    """
    result = "" if call.results is None else f"{value_text(call.results)} = "
    code = f"{result}{target_text(call.target)}({_arguments(call.args, call.kwargs)})"
    types = ", ".join(_types(call.results, values))
    note = (f" {types}" if types else "") + _place(call.where)
    return f"{code:<{COLUMN}}  #{note}" if note else code


def calls_text(graph: Graph, line_of: LineOf | None = None) -> str:
    """The torch level. `line_of` as for `graph_text`."""
    heads = _heads(graph, (f"v{i}" for i in range(len(graph.inputs))))
    signature = [f"def {graph.name}(", *heads, "):"] if heads else [f"def {graph.name}():"]
    constants = [
        f"    v{ref} = constant({type_text_of(tensor)})" for ref, tensor in graph.constants.items()
    ]
    body = _under_lines(
        [(call.where, call_text(call, graph.values)) for call in graph.calls], line_of
    )
    outputs = ", ".join(value_text(ref) for ref in graph.call_outputs)
    tail = f"    return ({outputs}{',' * (len(graph.call_outputs) == 1)})"
    return "\n".join([*signature, *constants, *body, tail])


def type_text_of(tensor: torch.Tensor) -> str:
    """The type text of a real tensor."""
    return f"{dtype_name(tensor.dtype)}[{', '.join(map(str, tensor.shape))}]"


def to_fx(graph: Graph) -> Any:
    """The ATen level as a torch.fx.GraphModule; constants become its buffers."""
    import operator

    import torch.fx

    root = torch.nn.Module()
    made = torch.fx.Graph()
    values: dict[Node, Any] = {}
    for node in graph.inputs:
        values[node] = made.placeholder(node.name)
    for node in graph.nodes:
        if node.op == "constant":
            root.register_buffer(node.name, node.target)
            values[node] = made.get_attr(node.name)
        elif node.op == "get":
            values[node] = made.call_function(operator.getitem, (values[node.args[0]], node.target))
        else:
            args = substitute(node.args, values.__getitem__, Node)
            kwargs = substitute(node.kwargs, values.__getitem__, Node)
            values[node] = made.call_function(node.target, args, kwargs)
        values[node].name = node.name if node.op != "constant" else values[node].name
        values[node].meta["type"] = type_text(node.meta)
    made.output(tuple(values[node] for node in graph.outputs))
    return torch.fx.GraphModule(root, made, graph.name)
