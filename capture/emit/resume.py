"""Resume functions and break tails: replacement code runs one original instruction, then continues.

`resume_code` makes the code object that re-enters a function in its middle. `break_tail` emits a
break into replacement code: the user's own instruction, then on each way out of it (the next
instruction, a jump's target, the handler of its exception) a call of a resume callable with
(closure tuple or None, *stack items that are not NULL, *locals). An exception that is being handled
is passed as such an item: the old frame ends its handling, and the resume function begins it again.
`can_resume` gives reasons why this is impossible.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from ...ir.dataclass import dataclass
from ..bytecode.assembler import Assembler
from ..bytecode.decoder import Instr, decode, resumed
from ..bytecode.encoder import Cover, Label
from ..bytecode.opcodes import FINAL, NULL_FIRST
from ..bytecode.stack_shape import FALLS, JUMPS, RAISES, Shape, stack_shape

CANNOT_CARRY = frozenset({"copy", "over", "mixed"})


@dataclass(frozen=True, slots=True)
class ResumeSpec:
    """How an edge of a break continues.

    The callable, the kinds of its stack slots ("value", "null", "exc" or "lasti", bottom first),
    and the bound locals (without cells, which come through the closure). A "spare" slot below all
    others is an unused first argument for `super()`.
    """

    callable: Any
    stack: tuple[str, ...]
    bound: tuple[str, ...]


class CannotResume(ValueError):
    """No resume function can re-create this position or state."""


def can_break(code: types.CodeType) -> str | None:
    """The reason why the function cannot be left in its middle, or None."""
    if decode(code).is_generator:
        return "the frame belongs to a generator or coroutine"
    if not code.co_flags & 0x01:
        return "the code is not a function's body"
    return None


def can_resume(code: types.CodeType, index: int) -> str | None:
    """The reason why the function cannot be re-entered before instruction `index`, or None."""
    decoded = decode(code)
    reason = can_break(code)
    if reason is not None:
        return reason
    shape = stack_shape(code, index)
    if shape is None:
        return "control never comes here"
    if CANNOT_CARRY & set(shape):
        return "an exception goes on here"
    if decoded.instrs[index].op == "MAKE_CELL":
        # An inlined comprehension (3.12) has just taken the cell of that name out of its slot.
        return "a comprehension's cell is being replaced here"
    return None


# Code of a resume function -> the locals of the original function, in their order there.
_ORDERS: weakref.WeakKeyDictionary[types.CodeType, tuple[str, ...]] = weakref.WeakKeyDictionary()


def order_of(code: types.CodeType) -> tuple[str, ...]:
    """The order in which plain Python drops the locals when the frame ends."""
    return _ORDERS.get(code, code.co_varnames)


def resume_code(
    code: types.CodeType, index: int, stack: tuple[str, ...], bound: tuple[str, ...]
) -> types.CodeType:
    """A code object that runs `code` from instruction `index` on.

    It takes the stack items that are not NULL, then the locals in `bound`. Its free variables are
    the original's cellvars and freevars, in that order. Raises CannotResume if `can_resume` gives a
    reason, or for a `super()` that would find no first argument.
    """
    asm = resume_assembler(code, index, stack, bound)
    begins = asm.emitted()[:-1]
    made = asm.finish()
    if asm.carries:
        decode.put(made, resumed(asm.code, made, begins, index))
    _ORDERS[made] = order_of(asm.code)
    return made


def resume_assembler(
    code: types.CodeType, index: int, stack: tuple[str, ...], bound: tuple[str, ...]
) -> Assembler:
    """The assembler of that code, before it is finished; its last instruction is the jump into the
    original."""
    asm = entered(code, index, stack, bound)
    asm.jump(asm.original(index))
    return asm


def entered(
    code: types.CodeType, index: int, stack: tuple[str, ...], bound: tuple[str, ...]
) -> Assembler:
    """The assembler of a function that has put its arguments back on the stack and in locals."""
    reason = can_resume(code, index)
    if reason is not None:
        raise CannotResume(reason)
    code = _written(code, index)
    asm = Assembler(code, bound, cells_from_outside=True)
    asm.set_location(decode(code).instrs[index].where)
    items = [asm.fresh("stack") if kind in PASSED else "" for kind in stack]
    args = [name for name in items if name] + list(bound)
    if set(bound) & set(asm.cells):
        raise ValueError("cells travel by the closure, not among the locals")
    first, source = _first_argument(asm, code, bound)
    if first is not None and not args:
        raise CannotResume("super() needs the first argument, and it lives in a cell")
    # Argument -> the name of its slot.
    place = dict(zip(args, args, strict=True))
    if first is not None and args[0] != first:
        if first in place:
            place[first] = asm.fresh("first")
        place[args[0]] = first
    asm.args = tuple(place[name] for name in args)
    asm.bound = frozenset(bound)
    for kind, name in zip(stack, items, strict=True):
        if kind != SPARE:
            _push_item(asm, kind, place.get(name, ""))
    _settle(asm, [name for name in bound if place[name] != name], place)
    if source is not None and first is not None:
        asm.load_deref(source)
        asm.store_fast(first)
    return asm


def _written(code: types.CodeType, index: int) -> types.CodeType:
    """The code that owns the instruction: the original, if a resume function carries its bytes."""
    decoded = decode(code)
    return decoded.base if decoded.base is not None and decoded.is_of_base(index) else code


SPARE = "spare"
PASSED = frozenset({"value", "exc", SPARE})
"""The kinds of stack slots passed to a resume function; it makes the others itself."""


def needs_spare(code: types.CodeType, stack: tuple[str, ...], bound: tuple[str, ...]) -> bool:
    """Whether `super()` would find no first argument in the function resumed with these."""
    code = decode(code).base or code
    may_ask = code.co_argcount and decode(code).may_call_bare_super
    return bool(may_ask) and not bound and not PASSED & set(stack)


def _push_item(asm: Assembler, kind: str, name: str) -> None:
    if kind == "null":
        asm.push_null()
    elif kind == "lasti":
        # It only gives the line of a frame that is over.
        asm.load_const(0)
    else:
        asm.take_fast(name)
        if kind == "exc":
            begin_handling(asm)


def begin_handling(asm: Assembler) -> None:
    """[..., exception] -> [..., exception handled before]: the start of an except block."""
    asm.emit("PUSH_EXC_INFO")
    asm.pop_top()


def end_handling(asm: Assembler) -> None:
    """[..., exception handled before] -> [..., exception]"""
    asm.call_const(sys.exception)
    asm.swap(2)
    asm.emit("POP_EXCEPT")


def _first_argument(
    asm: Assembler, code: types.CodeType, bound: tuple[str, ...]
) -> tuple[str | None, str | None]:
    """(name of the slot that `super()` reads, the cell to fill it from or None).

    (None, None) without a `super()`. CPython's super() reads slot 0 of its caller's frame.
    """
    if not code.co_argcount or not decode(code).may_call_bare_super:
        return None, None
    first = code.co_varnames[0]
    return (asm.fresh("first"), first) if first in asm.cells else (first, None)


def _settle(asm: Assembler, names: list[str], place: dict[str, str]) -> None:
    """Move locals from their argument slots to their own slots."""
    for name in names:
        asm.take_fast(place[name])
        asm.store_fast(name)


# -- break tails -----------------------------------------------------------------------------------
Path = tuple[tuple[Instr, str], ...]
"""The instructions since the break, including the broken one, each with how control left it."""

ResumeFor = Callable[[int, Path], "ResumeSpec | Callable[[Assembler], None]"]

ENDS = frozenset({"RETURN_VALUE", "RERAISE"})
TRIVIAL = frozenset({"NOP", "JUMP", "POP_TOP", "LOAD_CONST", "COPY", "SWAP", "POP_EXCEPT", *ENDS})
TRIVIAL_LENGTH = 12


def break_tail(
    asm: Assembler,
    code: types.CodeType,
    index: int,
    resume_for: ResumeFor,
    wrap_call: bool = False,
    extent: Any = None,
    stack: tuple[str, ...] | None = None,
    instead: Callable[[Assembler], None] | None = None,
) -> None:
    """Emit original instruction `index`, to the end of its real instruction, and its continuations.

    The emitted code before it must have restored the real stack and locals of that point.
    `resume_for(target, path)` gives the continuation of each way out (or emits it); it is not
    called where only a return or a raise remains. A method load leaves NULL and the bound
    attribute, never method and self. With `wrap_call`, a call runs as extent(callable, *args,
    **kwargs); `stack` then gives the "null" slots before the instruction where the code alone does
    not decide them. `instead` emits other code in place of a call: it leaves a result on the stack
    without the call's callable and arguments.
    """
    if asm.code is not code:
        raise ValueError("the assembler must be one for the code that breaks")
    instrs = decode(code).instrs
    instr = instrs[index]
    jump = _jump_of_answer(instrs, index)
    target = instr.target if jump is None else jump.target
    taken = None if target is None else asm.label()
    raised = None if instr.handler is None else asm.label()
    path: Path = ()
    with asm.covered(_cover(instr, raised)):
        asm.set_location(instr.where)
        if instead is not None:
            instead(asm)
        elif not (wrap_call and _wrapped(asm, instr, extent, stack or stack_shape(code, index))):
            _settled(asm, instr, taken)
        while instr.op not in FINAL and not instrs[instr.index + 1].head:
            path += ((instr, FALLS),)
            instr = instrs[instr.index + 1]
            _settled(asm, instr, taken)
        if jump is not None:
            path += ((instr, FALLS),)
            instr = jump
            _settled(asm, instr, taken)
    if instr.op not in FINAL:
        _edge(asm, instr.index + 1, resume_for, (*path, (instr, FALLS)))
    if taken is not None and target is not None:
        asm.place(taken)
        _edge(asm, target, resume_for, (*path, (instr, JUMPS)))
    if raised is not None:
        asm.place(raised)
        first = instrs[index]
        assert first.handler is not None
        _edge(asm, first.handler, resume_for, ((first, RAISES),))


ANSWERS = frozenset({"TO_BOOL", "IS", "CONTAINS"})
"""Instructions whose result is True or False."""


def _jump_of_answer(instrs: tuple[Instr, ...], index: int) -> Instr | None:
    """The jump that tests the True or False of the real instruction at `index`; it cannot fail.

    Each way out then has its own resume function, and none is compiled once per answer. From 3.13
    on all tests are such pairs (TO_BOOL); earlier, the jump itself tests the truth.
    """
    while instrs[index].op not in FINAL and not instrs[index + 1].head:
        index += 1
    if instrs[index].op not in ANSWERS:
        return None
    jump = instrs[index + 1]
    return jump if jump.op == "POP_JUMP_IF" and jump.arg in ("true", "false") else None


def _cover(instr: Instr, handler: Label | None) -> Cover | None:
    if handler is None:
        return None
    return Cover(handler, instr.handler_depth, instr.handler_lasti)


def _settled(asm: Assembler, instr: Instr, taken: Label | None) -> None:
    """Emit the instruction so that the NULLs on the stack after it are known."""
    if instr.op == "LOAD_METHOD":
        asm.load_attr(instr.arg[0])
    elif instr.op == "LOAD_SUPER_ATTR" and instr.arg[1]:
        asm.emit("LOAD_SUPER_ATTR", instr.arg[0], 2 * instr.arg[2])
    else:
        asm.raw(instr, None if instr.target is None else taken)
        return
    asm.push_null()
    if NULL_FIRST:
        asm.swap(2)


def _edge(asm: Assembler, index: int, resume_for: ResumeFor, path: Path) -> None:
    instrs = decode(asm.code).instrs
    ending = _trivial_ending(instrs, index)
    if ending is not None:
        _emit_ending(asm, ending, resume_for, path)
        return
    while instrs[index].op in ("NOP", "JUMP"):
        index = _next(instrs[index])
    how = resume_for(index, path)
    if isinstance(how, ResumeSpec):
        call_resume(asm, how)
    else:
        how(asm)


def _emit_ending(asm: Assembler, ending: list[Instr], resume_for: ResumeFor, path: Path) -> None:
    """Emit a trivial ending: only the raise at its end can fail, and its handler continues."""
    *before, last = ending
    raised = asm.label() if last.op == "RERAISE" and last.handler is not None else None
    for instr in before:
        asm.set_location(instr.where)
        if instr.op != "JUMP":
            asm.raw(instr)
    asm.set_location(last.where)
    with asm.covered(_cover(last, raised)):
        asm.raw(last)
    if raised is not None and last.handler is not None:
        asm.place(raised)
        way = tuple((instr, FALLS) for instr in before if instr.op != "JUMP")
        _edge(asm, last.handler, resume_for, (*path, *way, (last, RAISES)))


def _next(instr: Instr) -> int:
    return instr.index + 1 if instr.target is None else instr.target


def _trivial_ending(instrs: tuple[Instr, ...], index: int) -> list[Instr] | None:
    """The instructions from `index` on, if they only return or raise an existing value."""
    ending: list[Instr] = []
    while len(ending) < TRIVIAL_LENGTH and _is_trivial(instrs, index):
        instr = instrs[index]
        ending.append(instr)
        if instr.op in ENDS:
            return ending
        index = _next(instr)
    return None


def _is_trivial(instrs: tuple[Instr, ...], index: int) -> bool:
    """Whether it cannot fail, like the end of `except ... as name`: name = None; del name."""
    instr, before = instrs[index], instrs[index - 1]
    if instr.op == "STORE_FAST":
        after = instrs[index + 1]
        return before.op == "LOAD_CONST" and (after.op, after.arg) == ("DELETE_FAST", instr.arg)
    if instr.op == "DELETE_FAST":
        return (before.op, before.arg) == ("STORE_FAST", instr.arg)
    return instr.op in TRIVIAL


def call_resume(asm: Assembler, spec: ResumeSpec) -> None:
    """Call a resume callable with the cells, stack and locals, and return its result.

    Values are moved, not copied: this frame keeps none of them alive.
    """
    bad = [name for name in spec.bound if name in asm.cells]
    if bad:
        raise ValueError(f"cells travel by the closure, not among the locals: {bad}")
    temps: list[str] = []
    for kind in reversed(spec.stack):
        if kind == SPARE:
            asm.load_const(None)
        if kind == "exc":
            end_handling(asm)
        temp = asm.fresh("kept")
        asm.store_fast(temp)  # takes a NULL too, which unbinds the local
        if kind in PASSED:
            temps.append(temp)
    asm.begin_call(lambda: asm.load_const(spec.callable))
    load_cells(asm)
    for name in [*reversed(temps), *spec.bound]:
        asm.take_fast(name)
    asm.end_call(1 + len(temps) + len(spec.bound))
    asm.return_value()


def load_cells(asm: Assembler) -> None:
    """Push the tuple of all cells, own ones first, or None if the code has none."""
    if not asm.cells:
        asm.load_const(None)
        return
    for name in asm.cells:
        asm.load_closure(name)
    asm.build_tuple(len(asm.cells))


# -- calls inside an extent ------------------------------------------------------------------------
def _wrapped(asm: Assembler, instr: Instr, extent: Any, stack: Shape | None) -> bool:
    """Emit a call through `extent`; False (and nothing emitted) if that is not possible."""
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
    # Below the arguments are callable and self, or callable and NULL. The layout "method, self,
    # arguments" is the same in every version, so extent becomes the method, and its callee self.
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
    """f(*args, **kwargs) -> extent(f, *args, **kwargs) if args is a tuple or list at run time.

    Any other iterable stays with the plain call, whose messages name f.
    """
    has_kwargs: bool = instr.arg
    begin = len(asm.body)
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
    asm.wrapped[begin] = len(asm.body), extent, has_kwargs
