"""The decompiler: bytecode as Python text for people, of any function's code.

In: a code object. Out: a `Decompiled`: a text that `ast.parse` accepts, the objects behind invented
names, and what the text does not express exactly (`doubts`; a text without doubts can run).
`original` is the user's code: where control continues in its instructions, the text says so instead
of repeating them. Control flow in the form of ifs, loops and tries is written as such; any other
jump is `...  # goto L3` to a label. Reports of stages call it (`graftjit.lowered.collect`); nothing
that runs depends on it.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from typing import Any

from ...ir.dataclass import dataclass, field
from ...ir.graph.printing import place_text
from ...ir.location import Location
from ..bytecode.assembler import readable
from ..bytecode.decoder import Decoded, Handler, Instr, argument_names, decode, slot_names
from ..bytecode.opcodes import JUMP_EFFECTS, JUMPS
from .control_flow import Block, Flow, same_as
from .operators import step
from .stack import Entry, Names, Unbalanced, Walk, loose

NOTE_COLUMN = 56
# A block of at most SHORT instructions may be written again, MOST_COPIES times per function.
SHORT, MOST_COPIES = 8, 100
Stack = list[Entry]


@dataclass(frozen=True, slots=True)
class Decompiled:
    """The result of `decompile`, see the module's docstring."""

    text: str
    objects: dict[str, Any] = field(repr=False)
    doubts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


def decompile(
    code: types.CodeType,
    *,
    name: str | None = None,
    original: types.CodeType | None = None,
    named: Callable[[Any], tuple[str, str] | None] = lambda value: None,
    line_of: Callable[[Location], str] = lambda where: "",
) -> Decompiled:
    """The Python text of a code object.

    `name` replaces the code's name; `named` gives a name and a comment for a constant, `line_of`
    the text of a line of the program.
    """
    code = readable(code)
    writer = _Writer(code, None if original is None else readable(original), named, line_of)
    try:
        return writer.run(name or code.co_name)
    except (Unbalanced, LookupError, AssertionError):
        # The stack differs between paths to a position: only a list of instructions is right.
        return listed(code, name or code.co_name)


def listed(code: types.CodeType, name: str) -> Decompiled:
    """The instructions, as comments."""
    lines = [f"    # {str(instr).strip()}" for instr in decode(code).instrs]
    text = "\n".join([f"def {identifier(name)}(*_):", *lines, "    ..."])
    return Decompiled(text, {}, ("instructions as they are",))


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that is being written, with the targets of `continue` and `break`."""

    head: int
    exit: int | None


class _Writer:
    """Writes one function.

    `entry`: the stack at the beginning of each block that several paths reach.
    """

    def __init__(
        self,
        code: types.CodeType,
        original: types.CodeType | None,
        named: Callable[[Any], tuple[str, str] | None],
        line_of: Callable[[Location], str],
    ) -> None:
        self.code, self.line_of = code, line_of
        self.decoded: Decoded = decode(code)
        self.original = None if original is None else decode(original)
        self.flow = Flow(self.decoded)
        taken = {*code.co_names, *slot_names(code), "handled_before"}
        self.names = Names(taken, named)
        self.lines: list[tuple[int, str, str]] = []
        self.depth = 1
        self.entry: dict[int, Stack] = {}
        self.out: dict[int, Stack] = {}  # the stack at each block's end
        self.slots: set[str] = set()
        self.slots_at: dict[int, str] = {}
        self.done: dict[int, int] = {}  # block -> its first line
        self.labels: set[int] = set()
        self.fixed: set[int] = set()  # last lines of blocks
        self.heads: dict[int, tuple[str, str, str]] = {}  # line -> iterator's name, text, variable
        self.open: list[Handler] = []
        self.doubts: list[str] = []
        self.copies = 0
        self.skip: dict[int, int] = {}  # block -> number of instructions already written
        self.shown: Location | None = None

    def run(self, name: str) -> Decompiled:
        everything = set(self.flow.reached)
        self.sequence(0, [], None, None, everything)
        while left := sorted(at for at in self.labels if at not in self.done):
            self.sequence(left[0], list(self.entry.get(left[0], [])), None, None, everything)
        return Decompiled(self.text(name), dict(self.names.objects), tuple(self.doubts))

    # -- text
    def text(self, name: str) -> str:
        found = [f"def {identifier(name)}({', '.join(self.parameters())}):"]
        begins: dict[int, list[int]] = {}
        for at in self.labels:
            if at in self.done:
                begins.setdefault(self.done[at], []).append(at)
        body = False
        words = {word for _, text, _ in self.lines for word in re.findall(r"\w+", text)}
        for number, (depth, text, note) in enumerate(self.lines):
            turns, iterator, variable = self.heads.get(number, ("", "", ""))
            if turns in words:
                found.append(f"{'    ' * depth}{turns} = {iterator}")
                text = f"for {variable} in {turns}:"
            found += [f"{'    ' * depth}{self.label(at)}" for at in begins.get(number, ())]
            line = f"{'    ' * depth}{text}"
            found.append(f"{line:<{NOTE_COLUMN}}  # {note}" if note else line)
            body = body or not text.startswith("#")
        if not body:
            found.append("    pass")
        return "\n".join(found)

    def label(self, at: int) -> str:
        turns = self.flow.instrs[self.flow.blocks[at].start].op == "FOR_ITER"
        return f"# L{at}: the next turn of this loop" if turns else f"# L{at}:"

    def parameters(self) -> list[str]:
        code = self.code
        names = [self.names.local(one) for one in argument_names(code)]
        plain, last = names[: code.co_argcount], names[code.co_argcount + code.co_kwonlyargcount :]
        if code.co_posonlyargcount:
            plain.insert(code.co_posonlyargcount, "/")
        star = [f"*{last[0]}"] if code.co_flags & 0x04 else ["*"] * bool(code.co_kwonlyargcount)
        alone = names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        return [*plain, *star, *alone, *([f"**{last[-1]}"] if code.co_flags & 0x08 else [])]

    def write(self, text: str, note: str = "") -> None:
        last = self.lines[-1] if self.lines else (0, "", "")
        both = text.startswith("del ") and last[1].startswith("del ") and last[0] == self.depth
        together = both and len(self.lines) - 1 not in self.fixed
        if together and len(last[1]) + len(text) < NOTE_COLUMN:
            self.lines[-1] = (self.depth, f"{last[1]}, {text[4:]}", "")
            return
        self.lines.append((self.depth, text, note))

    def doubt(self, what: str) -> None:
        if what not in self.doubts:
            self.doubts.append(what)

    def below(self, head: str, body: Callable[[], Any]) -> Any:
        """Write an indented suite, with `pass` if it has no statement."""
        self.write(head)
        self.depth += 1
        begin = len(self.lines)
        found = body()
        if head.startswith(("for", "while")) and self.lines[-1] == (self.depth, "continue", ""):
            self.lines.pop()
        if all(text.startswith("#") for _, text, _ in self.lines[begin:]):
            self.write("pass")
        self.depth -= 1
        return found

    # -- control
    def sequence(
        self, at: int, stack: Stack, stop: int | None, loop: Loop | None, inside: set[int]
    ) -> bool:
        """Write from a block on until control reaches `stop` (True) or leaves (False)."""
        follow: Follow = (at, stack)
        while follow is not None:
            at, stack = self.flow.threaded(follow[0]), follow[1]
            if at == stop:
                self.leave(stack, at)
                return True
            if loop is not None and at in (loop.head, loop.exit):
                self.leave(stack, at)
                self.write("continue" if at == loop.head else "break")
                return False
            if at not in inside or (at in self.done and not self.again(at)):
                self.goto(stack, at)
                return False
            if len(self.flow.before[at]) > 1 and at not in self.flow.loops:
                self.leave(stack, at)
                stack = list(self.entry[at])
            follow = self.onward(_Place(at, stack, stop, loop, inside))
        return False

    def again(self, at: int) -> bool:
        """Whether a block is short enough to be written again, in place of a jump."""
        block = self.flow.blocks[at]
        self.copies += 1
        short = block.stop - block.start <= SHORT and self.copies <= MOST_COPIES
        covers = any(
            row.start < block.stop and block.start < row.stop for row in self.flow.handlers
        )
        loops = at in self.flow.loops or self.flow.instrs[block.start].op in ("FOR_ITER", "SEND")
        return short and not covers and not loops

    def onward(self, place: _Place, entered: bool = False) -> Follow:
        """Write what begins at a block: user's code, a try, a loop, or the block itself."""
        at = place.at
        if self.as_written(at):
            return None
        row = self.opening(at)
        if row is not None:
            return self.tried(place, row, entered)
        first = self.flow.instrs[self.flow.blocks[at].start]
        if first.op == "FOR_ITER":
            return self.for_loop(place)
        if at in self.flow.loops and not entered:
            return self.while_loop(place)
        return self.block(place)

    def leave(self, stack: Stack, at: int) -> None:
        """Bring the stack into the block's expected form: the same names on all paths."""
        known = self.entry.get(at)
        if known is None:
            base = stack if len(self.flow.before[at]) <= 1 else self.given(at)
            known = self.entry[at] = [
                entry if _steady(entry, base, place) else self.slot(place)
                for place, entry in enumerate(stack)
            ]
        if len(known) != len(stack):
            self.doubt("a stack of another depth")
            return
        differ = [pair for pair in zip(known, stack, strict=True) if pair[0].text != pair[1].text]
        pairs = [(form.text, entry) for form, entry in differ if form.text in self.slots]
        for form, entry in differ:
            if form.text not in self.slots:
                self.doubt("stacks that differ")
                self.write(
                    f"# on the stack in place of {form.text or form.kind}:"
                    f" {entry.text or entry.kind}"
                )
        if pairs:
            names, texts = ", ".join(n for n, _ in pairs), ", ".join(e.text for _, e in pairs)
            self.write(f"{names} = {texts}", "; ".join(e.note for _, e in pairs if e.note))

    def given(self, at: int) -> Stack:
        """The common part of the stack where the paths to a block separate."""
        parted = self.flow.dominator.get(at, -1)
        base = self.out.get(parted, [])
        return base[: self.flow.lowest(parted, at, len(base))] if base else []

    def slot(self, place: int) -> Entry:
        """The name of a stack position that several paths set."""
        name = self.slots_at.get(place)
        if name is None:
            name = self.slots_at[place] = self.names.fresh(f"s{place}")
            self.slots.add(name)
        return Entry(name, "const")

    def goto(self, stack: Stack, at: int) -> None:
        self.leave(stack, at)
        self.labels.add(at)
        self.doubt("goto")
        self.write("...", f"goto L{at}")

    def settled(self, stack: Stack) -> Stack:
        """The stack with all items under names that nothing changes."""
        walk = self.walk(stack)
        walk.spill()
        for entry in list(walk.stack):
            if entry.kind == "name":
                walk.spill(entry.of)
        return walk.stack

    def walk(self, stack: Stack) -> Walk:
        walk = Walk(self.names, self.write, self.doubt)
        walk.stack = list(stack)
        walk.time = max((entry.seq for entry in stack), default=0)
        return walk

    # -- the user's own code
    def as_written(self, at: int) -> bool:
        """If the original continues here, write so and return True."""
        if self.original is None:
            return False
        index = same_as(self.decoded, self.original, self.flow.blocks[at].start)
        if index is None:
            return False
        self.done[at] = len(self.lines)
        where = self.original.instrs[index].where
        beginning = all(one.op == "NOP" for one in self.original.instrs[:index])
        self.doubt("as written")
        if beginning:
            self.write("return as_written()", "from its beginning, in plain Python")
            return True
        text = self.line_of(where)
        self.write(f"# as written, from here on:  {place_text(where)}  {text}".rstrip())
        self.write(f"return as_written_from_line_{where.line}()", "in plain Python")
        return True

    # -- tries
    def opening(self, at: int) -> Handler | None:
        """The widest handler that begins here and is not written yet."""
        start = self.flow.blocks[at].start
        rows = [row for row in self.flow.handlers if row.start == start and row not in self.open]
        return max(rows, key=lambda row: row.stop, default=None)

    def tried(self, place: _Place, row: Handler, entered: bool) -> Follow:
        """Write a `try`; returns where control continues.

        A handler that covers several separate ranges becomes a comment.
        """
        self.open.append(row)
        handler = self.flow.number[row.target]
        stack = self.settled(place.stack)
        body = {n for n in place.inside if row.start <= self.flow.blocks[n].start < row.stop}
        error = self.names.fresh("error")
        on_stack = [*stack[: row.depth], *[Entry("0", "const")] * row.lasti, Entry(error, "const")]
        if not self.alone(row) or handler in self.done or handler not in place.inside:
            self.entry.setdefault(handler, on_stack)
            self.labels.add(handler)
            self.doubt("exceptions by label")
            last = self.flow.instrs[row.stop - 1].where.line
            self.write(f"# an exception from here to line {last} goes to L{handler}, as {error}")
            return self.onward(place.having(stack), entered)
        follow = self.behind(body, place.stop)
        inner = _Place(place.at, stack, follow, place.loop, body)
        went = self.below("try:", lambda: self.from_block(inner, entered))
        head = f"except BaseException as {error}:"
        rest = place.inside - body
        went |= self.below(head, lambda: self.sequence(handler, on_stack, follow, place.loop, rest))
        return (follow, list(self.entry[follow])) if went and follow is not None else None

    def alone(self, row: Handler) -> bool:
        """Whether no other range has the same handler."""
        return all(
            other is row or other.target != row.target or row.start <= other.start < row.stop
            for other in self.flow.handlers
        )

    def behind(self, body: set[int], stop: int | None) -> int | None:
        """The block where the body of a try continues."""
        out = [
            self.flow.threaded(after)
            for at in sorted(body)
            for after in self.flow.blocks[at].after
            if after not in body
        ]
        return stop if stop in out else max(out, key=out.count, default=None)

    def from_block(self, place: _Place, entered: bool) -> bool:
        """`sequence` from a block that may be the head of the loop being written."""
        follow = self.onward(place, entered)
        if follow is None:
            return False
        return self.sequence(*follow, place.stop, place.loop, place.inside)

    # -- loops
    def for_loop(self, place: _Place) -> Follow:
        block = self.flow.blocks[place.at]
        self.done[place.at] = len(self.lines)
        walk = self.walk(place.stack)
        iterator = walk.pop()
        under = self.settled(walk.stack)
        assert block.fall is not None and block.target is not None
        first = self.flow.instrs[self.flow.blocks[block.fall].start]
        turns = Entry(self.names.fresh("turns"), "loop")  # gets a name if something reads it
        stack, name = [*under, turns], ""
        if first.op == "STORE_FAST" and len(self.flow.before[block.fall]) == 1:
            name = self.names.local(first.arg)
            self.skip[block.fall] = 1
        else:
            name = self.names.temp()
            stack.append(Entry(name, "const"))
        leave = self.flow.threaded(block.target)
        self.entry[place.at] = [*under, turns]
        self.out[place.at] = under
        loop, inside = Loop(place.at, leave), place.around()
        head = f"for {name} in {iterator.inner or iterator.text}:"
        self.heads[len(self.lines)] = (turns.text, iterator.text, name)
        fall = block.fall
        self.below(head, lambda: self.sequence(fall, stack, None, loop, inside))
        return leave, under

    def while_loop(self, place: _Place) -> Follow:
        stack = self.settled(place.stack)
        for at, entry in enumerate(stack):  # another iteration may bring another value
            if entry.text and not entry.text.isidentifier():
                stack[at] = self.slot(at)
                self.write(f"{stack[at].text} = {entry.text}")
        self.entry[place.at] = stack
        leave = self.flow.exit_of(place.at)
        inner = _Place(place.at, stack, None, Loop(place.at, leave), place.around())
        self.below("while True:", lambda: self.from_block(inner, True))
        return None if leave is None else (leave, list(self.entry.get(leave, stack)))

    # -- blocks
    def block(self, place: _Place) -> Follow:
        block = self.flow.blocks[place.at]
        self.done[place.at] = len(self.lines)
        self.fixed.add(len(self.lines) - 1)
        walk = self.walk(place.stack)
        instrs = self.flow.instrs[block.start + self.skip.get(place.at, 0) : block.stop]
        at = 0
        while at < len(instrs):
            instr = instrs[at]
            self.show_line(instr, walk)
            if instr.op in ENDS:
                ENDS[instr.op](walk, instr)
                return None
            if instr.op in JUMPS:
                return self.jump(place, block, instr, walk)
            at += 1 + step(walk, instr, instrs[at + 1 :])
        return None if block.fall is None else (block.fall, walk.stack)

    def show_line(self, instr: Instr, walk: Walk) -> None:
        """Write the program's line above its first statement."""
        where = instr.where
        if where.column is None or any(entry.kind == "value" for entry in walk.stack):
            return
        if self.shown is None or (where.file, where.line) != (self.shown.file, self.shown.line):
            self.shown = where
            text = self.line_of(where)
            if text:
                self.write(f"# {place_text(where)}  {text}")

    def jump(self, place: _Place, block: Block, instr: Instr, walk: Walk) -> Follow:
        assert block.target is not None
        if instr.op == "JUMP":
            return block.target, walk.stack
        assert block.fall is not None
        if instr.op == "SEND":
            return self.send(block, walk)
        on_jump: Stack
        if instr.op == "POP_JUMP_IF":
            tested = walk.pop()
            walk.spill()
            on_jump = list(walk.stack)
        else:
            # Where the jump is taken, the tested value stays.
            slot = self.slot(len(walk.stack) - 1)
            tested = walk.pop()
            walk.spill()
            if tested.text != slot.text:
                walk.statement(f"{slot.text} = {tested.text}", [tested])
            tested, on_jump = slot, [*walk.stack, slot]
            self.entry.setdefault(self.flow.threaded(block.target), on_jump)
        taken, falls = _conditions(instr.arg, tested)
        return self.branch(place, block, (taken, on_jump), (falls, list(walk.stack)))

    def branch(
        self, place: _Place, block: Block, taken: tuple[str, Stack], falls: tuple[str, Stack]
    ) -> Follow:
        """Write an `if`: each branch with its condition and stack."""
        assert block.target is not None and block.fall is not None
        target, fall = self.flow.threaded(block.target), self.flow.threaded(block.fall)
        join = self.flow.join(block.number)
        join = None if join is None else self.flow.threaded(join)
        loop = place.loop
        ends = {None} if loop is None else {None, loop.head, loop.exit}
        if join in ends or (join not in place.inside and join != place.stop):
            join = None
        self.out[block.number] = falls[1]
        stop = place.stop if join is None else join

        def way(at: int, stack: Stack) -> bool:
            return self.sequence(at, stack, stop, loop, place.inside)

        if fall == join:
            self.leave(falls[1], fall)
            self.below(f"if {taken[0]}:", lambda: way(target, taken[1]))
            return fall, list(self.entry[fall])
        if target == join:
            # The other branch puts another value there, or none.
            self.leave(taken[1], target)
        went = self.below(f"if {falls[0]}:", lambda: way(fall, falls[1]))
        if target == join:
            return target, list(self.entry[target])
        if not went:
            return target, taken[1]
        self.below("else:", lambda: way(target, taken[1]))
        assert stop is not None
        return stop, list(self.entry[stop])

    def send(self, block: Block, walk: Walk) -> Follow:
        """Write a step of `yield from` or `await`."""
        assert block.target is not None and block.fall is not None
        receiver = walk.stay(2)
        given = walk.pop()
        temp = walk.names.temp()
        at = self.flow.threaded(block.target)
        walk.statement(f"{temp} = send({receiver.text}, {given.text})", [given])
        kept = JUMP_EFFECTS["SEND"][1] == 2
        under = list(walk.stack if kept else walk.stack[:-1])
        self.entry.setdefault(at, [*under, Entry(temp, "const")])
        self.labels.add(at)
        self.doubt("send()")
        self.write("...", f"goto L{at} when it is exhausted")
        walk.push(Entry(temp, "const"))
        return block.fall, walk.stack


Follow = tuple[int, Stack] | None


@dataclass(frozen=True, slots=True)
class _Place:
    """A block to write, with its stack and its surroundings: see `sequence`."""

    at: int
    stack: Stack
    stop: int | None
    loop: Loop | None
    inside: set[int]

    def having(self, stack: Stack) -> _Place:
        return _Place(self.at, stack, self.stop, self.loop, self.inside)

    def around(self) -> set[int]:
        """Blocks inside a loop that begins here: without those after the enclosing loop."""
        out = {self.stop} if self.loop is None else {self.stop, self.loop.exit, self.loop.head}
        return self.inside - {at for at in out if at is not None}


def _steady(entry: Entry, base: Stack, place: int) -> bool:
    """Whether all paths to a block find this entry under its present name."""
    if entry.kind in ("null", "self", "loop"):
        return True
    return entry.kind != "value" and place < len(base) and base[place] is entry


def _conditions(kind: str, tested: Entry) -> tuple[str, str]:
    """(condition when the jump is taken, condition when it is not)"""
    text = tested.text
    if kind in ("none", "not_none"):
        pair = f"{loose(tested)} is None", f"{loose(tested)} is not None"
        return pair if kind == "none" else pair[::-1]
    pair = text, f"not {loose(tested)}"
    return pair if kind == "true" else pair[::-1]


def _return(walk: Walk, instr: Instr) -> None:
    entry = walk.pop()
    walk.statement(f"return {entry.text}", [entry])


def _raise(walk: Walk, instr: Instr) -> None:
    given = walk.take(instr.arg)
    walk.statement(
        " from ".join(["raise " + given[0].text, *(e.text for e in given[1:])])
        if given
        else "raise",
        given,
    )


def _reraise(walk: Walk, instr: Instr) -> None:
    entry = walk.pop()
    walk.statement(f"raise {entry.text}", [entry])


ENDS: dict[str, Callable[[Walk, Instr], None]] = {
    "RETURN_VALUE": _return,
    "RAISE": _raise,
    "RERAISE": _reraise,
}


def identifier(name: str) -> str:
    """The name as a valid identifier; that of a lambda is `_lambda_`."""
    bare = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return bare if bare.isidentifier() else f"_{bare}"
