"""The program's lines for the code of a graph that Dynamo has captured.

In: a graph whose nodes have stack traces. Out: its function with the lines of the frame that Dynamo
captured, so that reports and tracebacks show the user's code in place of generated code.
"""

from __future__ import annotations

import linecache
import re
import types
from collections.abc import Callable
from typing import Any

import torch
from bytecode import Bytecode, Instr
from bytecode.instr import InstrLocation

from .runtime.process.wrappers import TORCH_FOLDER

# The outermost frame of a stack trace.
_FRAME = re.compile(
    r'\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)\n'
    r"(?:    (?P<text>.*)\n)?(?:    (?P<before> *)(?P<carets>\^+)\n)?"
)


def with_users_lines(graph: torch.fx.GraphModule) -> Callable[..., Any]:
    """The bound function of a graph."""
    forward = graph.forward
    frames = [_FRAME.match(node.stack_trace or "") for node in graph.graph.nodes]
    file, name = next((one.group("file", "name") for one in frames if one), ("", ""))
    lines = getattr(graph, "_lineno_map", None)
    if lines is None or not file or file.startswith(TORCH_FOLDER):
        return forward
    frames = [one if one and one["file"] == file else None for one in frames]
    function = forward.__func__
    begin = function.__code__.co_firstlineno
    # line of the generated code -> the frame of its node
    users = {begin + line: frames[at] for line, at in lines.items()}
    made = Bytecode.from_code(function.__code__)
    made.filename, made.name, made.qualname = file, name, name
    made.first_lineno = min(int(one["line"]) for one in frames if one)
    last = InstrLocation(made.first_lineno, None, None, None)
    for instruction in made:
        if isinstance(instruction, Instr) and instruction.location is not None:
            frame = users.get(instruction.location.lineno)
            instruction.location = last = _location(frame) if frame else last
    code = made.to_code()
    named = types.FunctionType(code, function.__globals__, name)
    return types.MethodType(named, graph)


def _location(frame: re.Match[str]) -> InstrLocation:
    """The place in the user's file; the columns are known if the line is as it was."""
    line, before, width = int(frame["line"]), frame["before"], len(frame["carets"] or "")
    source = linecache.getline(frame["file"], line)
    if not width or source.strip() != frame["text"].strip():
        return InstrLocation(line, line, None, None)
    begin = len(source) - len(source.lstrip()) + len(before)
    columns = [len(source[:end].encode()) for end in (begin, begin + width)]
    return InstrLocation(line, line, *columns)
