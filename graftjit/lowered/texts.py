"""Texts of stages without a graph: loop nests, kernel sources, program steps, guards.

In: the data of a graph that became a program (`codegen.programs.compiled.Seen`), or guard rows.
Out: text. Only `graftjit.lowered.collect` uses this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..codegen.loops import loop_nest
from ..codegen.programs.compiled import Seen
from ..ir.dataclass import dataclass, field
from ..ir.graph.nodes import Node
from ..ir.graph.printing import COLUMN, dtype_name, place_text, type_text
from ..ir.location import shown_text
from ..ir.symbolic.expr import hint_of
from ..runtime.guards.mirror import row_text
from ..runtime.guards.rows import Row
from ..runtime.guards.sources import Source
from ..runtime.program.program import (
    Alloc,
    Aten,
    DeviceLaunch,
    Free,
    Launch,
    Otherwise,
    ProgramSpec,
    Scratch,
    Slot,
    View,
)

_NO_KERNEL = "# no kernel: all operators are calls of the library"
FIRST_ADDRESS = 1 << 40  # larger than any size or stride


def nests_text(seen: Seen) -> str:
    """Each loop nest with its axes, values and stores."""
    found = [loop_nest.text(kernel.nest) for kernel in seen.plan.kernels]
    return shown_text("\n\n".join(found)) or _NO_KERNEL


def sources_text(seen: Seen) -> str:
    """The source text of each kernel."""
    found = [text.rstrip() for text in seen.texts.values()]
    return shown_text("\n\n".join(found)) or _NO_KERNEL


# -- the program -----------------------------------------------------------------------------------


def program_text(seen: Seen) -> str:
    """The steps as Python, one per line, with types, bytes, and the lines of the program that they
    compute."""
    spec = seen.compiled.spec
    return "" if spec is None else "\n".join(_Program(seen, spec).lines())


class _Program:
    """Prints a program. Inputs have their names in the graph; other slots are `s` and a number."""

    def __init__(self, seen: Seen, spec: ProgramSpec) -> None:
        self.seen, self.spec = seen, spec
        inputs = seen.graph.inputs
        self.names = {at: node.name for at, node in enumerate(inputs)}
        self.kernels = {kernel.nest.name: kernel for kernel in seen.plan.kernels}
        self.calls = iter(step for step in seen.plan.steps if isinstance(step, Node))
        self.epilogues = iter(
            kernel.nest.name for kernel in seen.plan.kernels if kernel.host is not None
        )

    def name(self, slot: int) -> str:
        return self.names.get(slot, f"s{slot}")

    def lines(self) -> Iterator[str]:
        spec, graph = self.spec, self.seen.graph
        comment = f"  # workspace of {_bytes(spec.arena)}" if hint_of(spec.arena) else ""
        yield f"def {spec.name}({', '.join(node.name for node in graph.inputs)}):{comment}"
        for slot, tensor in spec.constants.items():
            yield (
                f"    {self.name(slot)} = constant({dtype_name(tensor.dtype)}{list(tensor.shape)})"
            )
        for step in spec.steps:
            code, note = _STEPS[type(step)](self, step)
            yield f"    {code:<{COLUMN - 4}}  # {note}".rstrip() if note else f"    {code}"
        outputs = ", ".join(map(self.name, spec.outputs))
        yield f"    return ({outputs}{',' * (len(spec.outputs) == 1)})"

    # -- one method per kind of step: (code, comment)
    def alloc(self, step: Alloc) -> tuple[str, str]:
        sizes, kind = ", ".join(map(str, step.shape)), dtype_name(step.dtype)
        device = "" if step.device.type == "cpu" else f" {step.device}"
        count = _product(step.shape) * step.dtype.itemsize
        return f"{self.name(step.slot)} = empty([{sizes}], {kind})", f"{_bytes(count)}{device}"

    def scratch(self, step: Scratch) -> tuple[str, str]:
        where = "workspace" if step.base < 0 else self.name(step.base)
        code = f"{self.name(step.slot)} = {where}[{step.offset}:]"
        return code, f"{_bytes(step.nbytes)}, used only by kernels"

    def launch(self, step: Launch | DeviceLaunch) -> tuple[str, str]:
        kernel = self.kernels.get(step.kernel)
        reads = len(step.slots) if kernel is None else len(kernel.reads)
        given = [self.name(slot) for slot in step.slots]
        arguments = given[:reads] + [f"out={name}" for name in given[reads:]]
        arguments += [self.number(number) for number in step.numbers]
        code = f"{step.kernel}({', '.join(arguments)})"
        note = (
            f"kernel: {_covers(kernel.nodes)}"
            if kernel is not None
            else "a prebuilt kernel of graftjit"
        )
        return code, note

    def number(self, number: Any) -> str:
        """A number argument of a kernel. The address of an epilogue is shown by the epilogue's
        name."""
        if type(number) is int and number >= FIRST_ADDRESS:
            return next((name for name in self.epilogues), "epilogue")
        return str(number)

    def otherwise(self, step: Otherwise) -> tuple[str, str]:
        given = ", ".join(map(self.name, step.slots))
        return f"if trouble: raise_as_eager({given})", "an index out of range: ATen's own exception"

    def aten(self, step: Aten) -> tuple[str, str]:
        results = ", ".join("_" if slot is None else self.name(slot) for slot in step.results)
        given = [self.value(arg) for arg in step.args]
        given += [f"{name}={self.value(arg)}" for name, arg in step.kwargs.items()]
        target = str(step.op).removesuffix(".default")
        begin = f"{results} = " if results.strip("_, ") else ""
        return f"{begin}{target}({', '.join(given)})", self.call_note(step)

    def call_note(self, step: Aten) -> str:
        """Type and line of the node of this call. Steps and nodes have the same order."""
        for node in self.calls:
            if node.target is step.op:
                return f"library: {type_text(node.meta)}  {place_text(node.where)}".rstrip()
        return "library"

    def view(self, step: View) -> tuple[str, str]:
        sizes = ", ".join(map(str, step.shape))
        code = (
            f"{self.name(step.slot)} = {self.name(step.base)}.as_strided([{sizes}],"
            f" {list(step.stride)}"
        )
        return code + (f", {step.offset})" if hint_of(step.offset) else ")"), "view"

    def free(self, step: Free) -> tuple[str, str]:
        return f"del {', '.join(map(self.name, step.slots))}", ""

    def value(self, argument: Any) -> str:
        if isinstance(argument, Slot):
            return self.name(argument.index)
        if isinstance(argument, (list, tuple)):
            inside = ", ".join(map(self.value, argument))
            comma = "," if isinstance(argument, tuple) and len(argument) == 1 else ""
            return f"[{inside}]" if isinstance(argument, list) else f"({inside}{comma})"
        return str(argument) if not isinstance(argument, str) else repr(argument)


_STEPS: dict[type, Any] = {
    Alloc: _Program.alloc,
    Scratch: _Program.scratch,
    Launch: _Program.launch,
    DeviceLaunch: _Program.launch,
    Otherwise: _Program.otherwise,
    Aten: _Program.aten,
    View: _Program.view,
    Free: _Program.free,
}


def _covers(nodes: Iterable[Node]) -> str:
    """The operators of a kernel, and their lines in the program."""
    calls = [node for node in nodes if node.op == "call"]
    names = dict.fromkeys(node.target._schema.name.split("::")[1] for node in calls)
    places = dict.fromkeys(place_text(node.where) for node in calls if node.where is not None)
    return "  ".join(filter(None, (", ".join(names), ", ".join(places))))


def _product(sizes: Iterable[Any]) -> int:
    count = 1
    for size in sizes:
        count *= hint_of(size)
    return int(count)


def _bytes(count: Any) -> str:
    """1.5 KiB; for an expression, its value at capture."""
    number = float(hint_of(count))
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} GiB"


# -- guards ----------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Branch:
    """The guards of one source, and those of sources that extend it."""

    rows: list[Row] = field(default_factory=list)
    below: dict[Source, _Branch] = field(default_factory=dict)


def guards_text(rows: Iterable[Row]) -> str:
    """The guards as a tree of sources.

    A source is below the source that it extends. Its conditions are below it and call it `it`. Each
    condition is followed by the line of the program that made it necessary.
    """
    top = _Branch()
    for row in rows:
        branch = top
        for source in _path(row.source):
            branch = branch.below.setdefault(source, _Branch())
        branch.rows.append(row)
    return "\n".join(_branch_lines(top, 0, ""))


def _path(source: Source | None) -> list[Source]:
    found: list[Source] = []
    while source is not None:
        found.append(source)
        source = source.base
    return found[::-1]


def _branch_lines(branch: _Branch, depth: int, name: str) -> Iterator[str]:
    for row in branch.rows:
        known = {} if row.source is None else {id(row.source): name}
        text = f"{'    ' * depth}{row_text(row, known)}"
        place = place_text(row.where)
        yield f"{text:<{COLUMN}}  # {place}" if place else text
    for source, below in branch.below.items():
        label = _step(source)
        if len(below.rows) == 1 and not below.below:
            yield from _branch_lines(below, depth, label)
        else:
            yield f"{'    ' * depth}{label}"
            yield from _branch_lines(below, depth + 1, "it")


def _step(source: Source) -> str:
    """The text that the last step of a source adds."""
    if source.base is None:
        return str(source)
    text = source.text({id(source.base): ""})
    return "type(it)" + text.removeprefix("type()") if text.startswith("type()") else text


__all__ = ["guards_text", "nests_text", "program_text", "sources_text"]
