"""Resume functions and break tails: how replacement code runs one original instruction and goes on after it.

`resume_code` makes the code object that re-enters a function in its middle; `break_tail` emits a break into
replacement code: the user's own instruction, then on each way out of it a call of a resume callable with
(closure tuple or None, *stack items that are not NULL, *locals). `can_resume` tells where this is impossible.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .assemble import Assembler
from .bytecodes import Instr, decode
from .encode import Label
from .optable import FINAL, NULL_FIRST
from .stackshape import Shape, stack_shapes

CANNOT_CARRY = frozenset({"exc", "raised", "lasti"})


@dataclass(frozen=True, slots=True)
class ResumeSpec:
    """How an edge of a break goes on: what to call, what is on the stack there ("value" or "null" per slot,
    bottom first), and which locals are bound (no cells: they go by the closure)."""

    callable: Any
    stack: tuple[str, ...]
    bound: tuple[str, ...]


class CannotResume(ValueError):
    """A position or state that no resume function can re-create."""


def can_resume(code: types.CodeType, index: int) -> str | None:
    """None, or why the function cannot be re-entered before instruction `index`."""
    decoded = decode(code)
    if decoded.is_generator:
        return "the frame belongs to a generator or coroutine"
    if not code.co_flags & 0x01:
        return "the code is not a function's body"
    shape = stack_shapes(code)[index]
    if shape is None:
        return "control never comes here"
    if CANNOT_CARRY & set(shape):
        return "an exception is being handled here"
    if decoded.instrs[index].op == "MAKE_CELL":
        # An inlined comprehension (3.12) has just taken the cell of that name out of its slot.
        return "a comprehension's cell is being replaced here"
    return None


def resume_code(
    code: types.CodeType, index: int, stack: tuple[str, ...], bound: tuple[str, ...]
) -> types.CodeType:
    """A code object that takes the stack items that are not NULL, then the locals in `bound`, and runs `code`
    from instruction `index` on. Its free variables are the original's cellvars and freevars, in that order.

    Raises CannotResume if `can_resume` gives a reason, or for a `super()` that would find no first argument.
    """
    reason = can_resume(code, index)
    if reason is not None:
        raise CannotResume(reason)
    asm = Assembler(code, cells_from_outside=True)
    asm.set_location(decode(code).instrs[index].where)
    items = [asm.fresh("stack") if kind == "value" else "" for kind in stack]
    args = [name for name in items if name] + list(bound)
    if set(bound) & set(asm.cells):
        raise ValueError("cells travel by the closure, not among the locals")
    first, source = _first_argument(asm, code, bound)
    if first is not None and not args:
        raise CannotResume("super() needs the first argument, and it lives in a cell")
    place = dict(
        zip(args, args, strict=True)
    )  # what is passed -> the name of the slot that it comes in
    if first is not None and args[0] != first:
        if first in place:
            place[first] = asm.fresh("first")
        place[args[0]] = first
    asm.args = tuple(place[name] for name in args)
    asm.bound = frozenset(bound)
    for name in items:
        asm.take_fast(place[name]) if name else asm.push_null()
    _settle(asm, [name for name in bound if place[name] != name], place)
    if source is not None and first is not None:
        asm.load_deref(source)
        asm.store_fast(first)
    asm.jump(asm.original(index))
    return asm.finish()


def _first_argument(
    asm: Assembler, code: types.CodeType, bound: tuple[str, ...]
) -> tuple[str | None, str | None]:
    """(name of the slot that `super()` will read, the cell to fill it from or None); (None, None) if no
    `super()` can come. CPython's super() takes slot 0 of the frame that calls it."""
    if not code.co_argcount or not decode(code).may_call_bare_super:
        return None, None
    first = code.co_varnames[0]
    return (asm.fresh("first"), first) if first in asm.cells else (first, None)


def _settle(asm: Assembler, names: list[str], place: dict[str, str]) -> None:
    """Move locals from the slots that they came in to their own."""
    for name in names:
        asm.take_fast(place[name])
        asm.store_fast(name)


# -- break tails ---------------------------------------------------------------------------------------------
ResumeFor = Callable[[int, bool], "ResumeSpec | Callable[[Assembler], None]"]

TRIVIAL = frozenset({"NOP", "JUMP", "POP_TOP", "LOAD_CONST", "COPY", "SWAP", "RETURN_VALUE"})
TRIVIAL_LENGTH = 8


def break_tail(
    asm: Assembler,
    code: types.CodeType,
    index: int,
    resume_for: ResumeFor,
    wrap_call: bool = False,
    extent: Any = None,
    stack: tuple[str, ...] | None = None,
) -> None:
    """Emit original instruction `index` (to the end of the real instruction that it is a part of) and what
    follows it. Before: the emitted code has restored the real stack and locals of that point.

    `resume_for(target, jumped)` says how to go on at each way out (or emits it); it is not asked where only a
    return is left. A method load leaves NULL and the bound attribute, never method and self. With `wrap_call`,
    a call runs as extent(callable, *args, **kwargs); `stack` then tells which slots before the instruction are
    "null", as far as the code alone does not.
    """
    if asm.code is not code:
        raise ValueError("the assembler must be one for the code that breaks")
    instrs = decode(code).instrs
    instr = instrs[index]
    taken = None if instr.target is None else asm.label()
    with asm.covered(asm.cover_of(instr)):
        asm.set_location(instr.where)
        if not (wrap_call and _wrapped(asm, instr, extent, stack or stack_shapes(code)[index])):
            _settled(asm, instr, taken)
        while instr.op not in FINAL and not instrs[instr.index + 1].head:
            instr = instrs[instr.index + 1]
            _settled(asm, instr, taken)
    if instr.op not in FINAL:
        _edge(asm, instr.index + 1, resume_for, False)
    if taken is not None and instr.target is not None:
        asm.place(taken)
        _edge(asm, instr.target, resume_for, True)


def _settled(asm: Assembler, instr: Instr, taken: Label | None) -> None:
    """The instruction itself, with a stack after it whose NULLs are known."""
    if instr.op == "LOAD_METHOD":
        asm.load_attr(instr.arg[0])
    elif instr.op == "LOAD_SUPER_ATTR" and instr.arg[1]:
        asm.emit("LOAD_SUPER_ATTR", instr.arg[0], 2 * instr.arg[2])
    else:
        asm.raw(instr, taken)
        return
    asm.push_null()
    if NULL_FIRST:
        asm.swap(2)


def _load_method(asm: Assembler, instr: Instr) -> None:
    """The plain attribute in place of the method pair, so that what stands where NULL may stand is known."""
    name, null_first = instr.arg
    asm.load_attr(name)
    asm.push_null()
    if null_first:
        asm.swap(2)


def _edge(asm: Assembler, index: int, resume_for: ResumeFor, jumped: bool) -> None:
    instrs = decode(asm.code).instrs
    ending = _trivial_ending(instrs, index)
    if ending is not None:
        for instr in ending:
            asm.set_location(instr.where)
            if instr.op != "JUMP":
                asm.raw(instr)
        return
    while instrs[index].op in ("NOP", "JUMP"):
        index = _next(instrs[index])
    how = resume_for(index, jumped)
    if isinstance(how, ResumeSpec):
        call_resume(asm, how)
    else:
        how(asm)


def _next(instr: Instr) -> int:
    return instr.index + 1 if instr.target is None else instr.target


def _trivial_ending(instrs: tuple[Instr, ...], index: int) -> list[Instr] | None:
    """The instructions from `index` on, if they only return something that is already there."""
    ending: list[Instr] = []
    while len(ending) < TRIVIAL_LENGTH and instrs[index].op in TRIVIAL:
        instr = instrs[index]
        ending.append(instr)
        if instr.op == "RETURN_VALUE":
            return ending
        index = _next(instr)
    return None


def call_resume(asm: Assembler, spec: ResumeSpec) -> None:
    """Call a resume callable with the cells, the stack and the locals as they are, and return its result.
    They are moved, not copied: this frame keeps none of them alive."""
    bad = [name for name in spec.bound if name in asm.cells]
    if bad:
        raise ValueError(f"cells travel by the closure, not among the locals: {bad}")
    temps: list[str] = []
    for kind in reversed(spec.stack):
        temp = asm.fresh("kept")
        asm.store_fast(temp)  # takes a NULL too, and then unbinds
        if kind == "value":
            temps.append(temp)
    asm.begin_call(lambda: asm.load_const(spec.callable))
    load_cells(asm)
    for name in [*reversed(temps), *spec.bound]:
        asm.take_fast(name)
    asm.end_call(1 + len(temps) + len(spec.bound))
    asm.return_value()


def load_cells(asm: Assembler) -> None:
    """Push the tuple of all cells, own ones first, or None where the code has none."""
    if not asm.cells:
        asm.load_const(None)
        return
    for name in asm.cells:
        asm.load_closure(name)
    asm.build_tuple(len(asm.cells))


# -- calls inside an extent ----------------------------------------------------------------------------------
def _wrapped(asm: Assembler, instr: Instr, extent: Any, stack: Shape | None) -> bool:
    """Emit a call through `extent`; False (and nothing emitted) where that is not possible."""
    if stack is None:
        return False
    if instr.op == "CALL":
        argc, kwnames = instr.arg
        return _wrap_call(asm, extent, stack[-argc - 2 : len(stack) - argc], argc, kwnames)
    if instr.op == "CALL_FUNCTION_EX":
        _wrap_call_ex(asm, extent, instr)
        return True
    return False


def _wrap_call(
    asm: Assembler, extent: Any, pair: tuple[str, ...], argc: int, kwnames: tuple[str, ...]
) -> bool:
    if "maybe" in pair or pair == ("null", "null"):
        return False
    # Below the arguments stand callable and self, or callable and NULL. A call's layout "method, self,
    # arguments" is the same in every version, so extent goes in as the method, and what it calls as self.
    asm.load_const(extent)
    if "null" not in pair:
        for depth in range(argc + 3, 1, -1):
            asm.swap(depth)
        asm.end_call(argc + 1, kwnames)
        return True
    asm.swap(argc + 3)
    if pair[1] == "null":
        asm.swap(argc + 2)
    asm.store_fast(asm.fresh("null"))
    asm.end_call(argc, kwnames)
    return True


def _wrap_call_ex(asm: Assembler, extent: Any, instr: Instr) -> None:
    """f(*args, **kwargs) -> extent(f, *args, **kwargs) if args is a tuple or list by now; any other iterable is
    left to the plain call, whose messages name f."""
    has_kwargs: bool = instr.arg
    done, wrap = asm.label(), asm.label()
    for kind in (tuple, list):
        asm.begin_call(lambda: asm.load_const(type))
        asm.copy(3 + has_kwargs)
        asm.end_call(1)
        asm.load_const(kind)
        asm.emit("IS_OP", 0)
        asm.emit("POP_JUMP_IF_TRUE", target=wrap)
    asm.raw(instr)
    asm.jump(done)
    asm.place(wrap)
    args, kwargs, null = asm.fresh("args"), asm.fresh("kwargs"), asm.fresh("null")
    if has_kwargs:
        asm.store_fast(kwargs)
    asm.store_fast(args)
    if not NULL_FIRST:
        asm.store_fast(null)
    asm.build_list(1)
    asm.take_fast(args)
    asm.list_extend(1)
    asm.list_to_tuple()
    asm.load_const(extent)
    asm.swap(2)
    if not NULL_FIRST:
        asm.push_null()
        asm.swap(2)
    if has_kwargs:
        asm.take_fast(kwargs)
    asm.emit("CALL_FUNCTION_EX", int(has_kwargs))
    asm.place(done)
