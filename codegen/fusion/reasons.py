"""Fusion reasons: for each step, the steps that read its results, and why they are not one with it.

Fusion notes for each operator why a kernel that made an operand could not take it in
(`Fusion.apart`). A step that is not a kernel is a call, which is a reason by itself. If there is
neither, no reason is reported. `codegen.pipeline` calls `reasons(made)`; the result is kept with
the plan and shown by reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.graph.effects import reads, root
from ...ir.graph.nodes import Node
from ...runtime.codes import NOT_FUSED
from ..loops.kernel import Kernel
from ..programs import step_facts
from .input_mutations import STORED

if TYPE_CHECKING:
    from ..schedule.plan import Plan
    from .fuse import Fusion

Reason = tuple[str, str, str]  # (the step that reads, why, code)


def reasons(made: Plan) -> dict[str, list[Reason]]:
    """Step name -> reasons, in the order of the program."""
    named = list(zip(step_facts.names(made.steps), made.steps, strict=True))
    readers: dict[Node, list[tuple[str, Kernel | Node]]] = {}
    for name, step in named:
        for base in dict.fromkeys(_read(step)) if name else ():
            readers.setdefault(base, []).append((name, step))
    found: dict[str, list[Reason]] = {}
    for name, step in named:
        if not name:
            continue
        for base in dict.fromkeys(root(node) for node in _made(step)):
            for other, reader in readers.get(base, ()):
                code = "" if reader is step else _why(made.fusion, base, step, reader)
                if code and not any(other == one for one, _, _ in found.get(name, ())):
                    found.setdefault(name, []).append((other, NOT_FUSED[code], code))
    return found


def _made(step: Kernel | Node) -> tuple[Node, ...]:
    return step.stores if isinstance(step, Kernel) else (step,)


def _read(step: Kernel | Node) -> list[Node]:
    """The memory that a step reads; for one result of a call, also that call."""
    bases = step.uses if isinstance(step, Kernel) else [root(node) for node in reads(step)]
    return [*bases, *(base.args[0] for base in bases if base.op == "get")]


def _why(fusion: Fusion, base: Node, step: Kernel | Node, reader: Kernel | Node) -> str:
    """The code of the reason; empty if none was noted."""
    if not isinstance(step, Kernel) or not isinstance(reader, Kernel):
        both = not isinstance(step, Kernel) and not isinstance(reader, Kernel)
        return "" if both else "NF701"
    home = fusion.home.get(base)
    if home is None:
        return ""
    maker = home.now()
    # the copy that does a write has the write's name with a suffix (`input_mutations`)
    named = {node.name for node in reader.nodes}
    for node, refused in fusion.apart.items():
        if node.name in named or node.name.removesuffix(STORED) in named:
            for unit, code in refused:
                if unit.now() is maker:
                    return code
    return ""
