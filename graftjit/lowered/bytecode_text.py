"""The text of the stage "bytecode": the code that replaces a frame, as Python.

In: the capture of a frame (`runtime.events.observers.Published`) and its graph. Out: for a direct
entry, the work of the native callable without a frame; else the replacement code and its resume
functions, as the emitter wrote them (`capture.emit.printing`). `graftjit.lowered.collect` uses this
module.
"""

from __future__ import annotations

import linecache
import types
from collections.abc import Callable
from typing import Any

from ..capture import helpers
from ..capture.bytecode.assembler import Assembler
from ..capture.bytecode.decoder import argument_names
from ..capture.emit.continuations import calls_inner
from ..capture.emit.printing import identifier, place_from, printed
from ..capture.emit.resume import resume_assembler
from ..ir.graph.nodes import Graph
from ..ir.graph.printing import place_text, type_text
from ..ir.location import Location
from ..runtime import _native
from ..runtime.events.observers import Published

KNOWN: tuple[tuple[Any, str, str], ...] = (
    (_native.call_in_extent, "call_in_extent", "Python calls it; frames below are captured, too"),
    (
        helpers.program_failed,
        "program_failed",
        "reports the error; Python runs the frame again if it may",
    ),
    (_native.run_pending, "run_pending", "the result of a call that is returned unmade"),
    (helpers.nothing, "no_graph", "the graph computes nothing"),
)
"""Objects of graftjit that replacement code calls: object, name, comment."""


def line_of(where: Location) -> str:
    """The text of the program's line, without indentation."""
    return "" if where.line is None else linecache.getline(where.file, where.line).strip()


def code_text(entry: Published) -> str:
    """See the module's docstring; "" if the frame runs uncompiled."""
    made = entry.made
    if made.kind == "direct":
        return _direct_text(entry)
    if made.assembler is None:
        return ""
    named = _namer(entry)
    head = f"# in place of {_begin(entry.code)}"
    text = _text(made.assembler, entry.code.co_name, named)
    found = [f"{head}\n{_with_sections(text, made.breaks)}"]
    seen: set[str] = set()
    for of, (target, stack, bound, *_), _tail in entry.resumes:
        code = of or entry.code
        name = _resume_name(code, target)
        if name in seen:
            continue
        seen.add(name)
        where = place_from(code, target)
        text = _text(resume_assembler(code, target, stack, bound), name, named)
        found.append(f"# continues at {place_text(where)}\n{text}")
    return "\n\n".join(found)


def _with_sections(text: str, breaks: list[Any]) -> str:
    """The code with headings: inputs of the graph, the graph, what follows it."""
    lines = text.splitlines()
    called = next((at for at, line in enumerate(lines) if "# the graph: " in line), None)
    if called is None:
        return text
    begin = called - (lines[called - 1].strip() == "try:")
    unpacked = (
        at
        for at, line in enumerate(lines)
        if at > called and line.startswith(("    (out", "    ()"))
    )
    end = next(unpacked, called)
    after = "    # effects, and locals and stack as they are " + (
        "at the break" if breaks else "at the end"
    )
    prologue = ["    # prologue: what the graph takes"] if begin > 1 else []
    return "\n".join(
        [
            lines[0],
            *prologue,
            *lines[1:begin],
            "    # the graph",
            *lines[begin : end + 1],
            after,
            *lines[end + 1 :],
        ]
    )


def _text(asm: Assembler, name: str, named: Callable[[Any], Any]) -> str:
    return printed(asm, name, named, line_of).text


def _begin(code: types.CodeType) -> str:
    where = Location(code.co_filename, code.co_firstlineno, function=code.co_qualname)
    return f"{code.co_qualname}, {place_text(where)}"


def _resume_name(code: types.CodeType, target: int) -> str:
    return f"{code.co_name}_from_line_{place_from(code, target).line}_at_{target}"


def _namer(entry: Published) -> Callable[[Any], tuple[str, str] | None]:
    """A function that gives names and comments for constants of replacement code."""
    made = entry.made

    def named(value: Any) -> tuple[str, str] | None:
        if made.graph is not None and value is made.program:
            return f"graph_{entry.code.co_name.strip('<>')}", types_of(made.graph)
        for of, (target, *_), tail in entry.resumes:
            if value is tail:
                return _resume_name(of or entry.code, target), "continues after the break"
        if calls_inner(value):
            return f"{value.co_name}_continues", "calls the rest of its callee, then goes on"
        if isinstance(value, types.FunctionType) and value.__name__ == "<lambda>":
            ours = str(value.__module__ or "graftjit.").startswith("graftjit.")
            return ("number", "computed from these") if ours else None
        for known, name, note in KNOWN:
            if value is known:
                return name, note
        return None

    return named


def types_of(graph: Graph) -> str:
    """f32[8, 3], f32[3, 4] -> f32[8, 4]"""
    given = ", ".join(type_text(node.meta) for node in graph.inputs)
    return f"the graph: {given} -> {', '.join(type_text(n.meta) for n in graph.outputs)}"


# -- direct entries --------------------------------------------------------------------------------


def _direct_text(entry: Published) -> str:
    """The work of the native callable, written as a function."""
    made = entry.made
    sources = [str(source).lstrip(".") for source in made.inputs]
    arguments = ", ".join(name.lstrip(".") for name in argument_names(entry.code))
    lines = [
        f"# in place of {_begin(entry.code)}: done by the native callable, without a frame",
        f"def {identifier(entry.code.co_name)}({arguments}):",
    ]
    outputs = 0 if made.graph is None else len(made.graph.outputs)
    if made.graph is not None:
        names = "".join(f"out{at}, " for at in range(outputs))
        given = ", ".join(sources[: made.n_program])
        lines.append(f"    # {types_of(made.graph)}")
        lines.append(
            f"    ({names.strip() if outputs == 1 else names.rstrip(', ')}) = graph({given})"
        )
    lines.append(f"    return {_tree_text(made.tree, sources)}")
    return "\n".join(lines)


def _tree_text(tree: Any, sources: list[str]) -> str:
    """The expression of the result, from outputs of the program and from inputs that are returned
    (`capture.emit.result_tree`)."""
    kind = tree[0]
    if kind == "const":
        return repr(tree[1])
    if kind == "input":
        return sources[tree[1]]
    if kind == "out":
        return f"out{tree[1]}"
    if kind == "dict":
        pairs = (
            f"{_tree_text(key, sources)}: {_tree_text(item, sources)}" for key, item in tree[1]
        )
        return f"{{{', '.join(pairs)}}}"
    items = ", ".join(_tree_text(child, sources) for child in tree[1:])
    if kind == "tuple":
        return f"({items}{',' * (len(tree) == 2)})"
    return f"[{items}]"
