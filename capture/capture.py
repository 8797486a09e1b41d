"""The driver of the symbolic machine: captures one frame as the data of one entry.

In: a code object, its bound arguments, globals and closure, and a backend. Out: a `Capture`: guard
rows, and either a direct result tree over a compiled graph, or replacement code, or a reason for
plain Python. At a break the capture may begin again with that break known; the user sees nothing
twice, because capture runs nothing of the program.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ..ir.dataclass import dataclass, field
from ..ir.graph.nodes import Graph
from ..ir.location import Location
from ..ir.trace import autocast_cache
from ..ir.trace.tracer import Tracer
from ..runtime.autograd import rollback
from ..runtime.guards.dynamic_sizes import Variation
from ..runtime.guards.interpreter_state import snapshot
from ..runtime.guards.rows import Row, types_only
from ..runtime.guards.sources import Source
from ..runtime.guards.tensor_access import history
from ..runtime.safe_access import Unsure
from . import (
    alias_guards,
    helpers,
    model_tables,  # noqa: F401
    walk_warnings,
)
from .breaks import (
    ArrayShares,
    Break,
    BreaksInside,
    ExceptionLeaves,
    GeneratorLeaves,
    LooksAtFrame,
    MustBePython,
    NeedsPlainSizes,
    PlainFrame,
    Restart,
    Thrown,
    let_go,
)
from .bytecode.assembler import Assembler
from .bytecode.branches import note_side
from .bytecode.decoder import argument_names, decode
from .bytecode.node_reads import reads_nodes
from .data_model import conditional, frame_inspection
from .earlier_walks import EarlierWalks
from .emit.break_state import made_here, with_handlers, with_method
from .emit.continuations import continuation, level
from .emit.emitter import Emitter
from .emit.left_frame import LeftFrame, ResumeFactory
from .emit.result_tree import Trees, shift
from .emit.resume import Path, ResumeSpec, break_tail, can_break, order_of
from .finalizers import Ends
from .interpreter.machine import Machine
from .torch_models import backward, numpy_arrays
from .torch_models.context_managers import GRAD_MODES, split_block
from .torch_models.nested_traces import lift
from .values import symbolic_numbers
from .values.arguments import Arguments
from .values.containers import NotConstant
from .values.effects import is_undone
from .values.frames import Frame, Scope, has_two_of_a_name, make_frame
from .values.value import Tensor, Value

MAX_RESTARTS = 200

Backend = Callable[[Graph], Any]


@dataclass(frozen=True, slots=True)
class FrameInput:
    """A frame from the runtime: `locals` are the bound arguments in co_varnames order."""

    code: types.CodeType
    locals: tuple[Any, ...]
    globals: dict[str, Any]
    closure: tuple[Any, ...] | None
    varied: Variation | None = None  # what varies between calls, so far
    claims_compiling: bool = False  # see `JitConfig`
    follows_iterators: bool = True
    # Outcomes of branches that the graph assumes, and checks: see `raising_checks`. Then only a
    # "direct" capture is wanted.
    assumed: dict[Any, bool] | None = None


@dataclass(frozen=True, slots=True)
class BreakRecord:
    """One break, for the report."""

    code: str
    reason: str
    where: Location | None
    inlined: tuple[Location, ...] = ()


@dataclass(slots=True)
class Capture:
    """The outcome. kind: "direct", "code" or "plain".

    program   the backend's program of the graph, or None
    inputs    Sources that a direct entry gathers; the first `n_program` are the program's
    tree      the result of a direct entry (see _native.Entry)
    code      replacement code of a "code" entry, made with `assembler`
    plain     why the frame runs in plain Python
    """

    kind: str
    rows: list[Row]
    graph: Graph | None = None
    program: Any = None
    inputs: list[Source] = field(default_factory=list)
    n_program: int = 0
    tree: Any = None
    code: types.CodeType | None = None
    assembler: Assembler | None = None
    breaks: list[BreakRecord] = field(default_factory=list)
    plain: BreakRecord | None = None
    rerun: bool = False
    symbolic: list[tuple[str, str]] = field(default_factory=list)  # what varies, and why
    claimed: bool = False  # whether the program saw `is_compiling()` as True
    # the branch on tensor data at the break -> truth -> what resumes the frame
    sides: dict[Any, dict[bool, Any]] = field(default_factory=dict)


def capture(
    frame: FrameInput,
    backend: Backend,
    make_resume: ResumeFactory,
    extent: Callable[..., Any],
    strict: Callable[[BreakRecord], None],
) -> Capture:
    """Capture one frame. `strict` is called with a break before its emission, and may raise.

    Exceptions other than those of `strict` and `backend` are faults of graftjit.
    """
    known = EarlierWalks()
    constants: list[tuple[str, str]] = []
    try:
        decode(frame.code)
    except Break as unreadable:
        return _plain(strict, unreadable.code, unreadable.reason)
    for _ in range(MAX_RESTARTS):
        attempt = _Attempt(frame, backend, make_resume, extent, strict, known)
        try:
            made = attempt.run()
            made.symbolic += constants
            made.claimed = attempt.machine.claimed
            return made
        except Restart:
            continue
        except (ExceptionLeaves, ArrayShares, MustBePython) as leaves:
            if known.refuse(leaves):
                continue
            where = decode(frame.code).instrs[leaves.index].where
            stop = known.forced[leaves.index] = Break(leaves.code, leaves.reason, where)
            stop.inlined = leaves.inlined
        except GeneratorLeaves:
            if not known.walks_generators:  # another iterator that cannot be rebuilt
                return _plain(strict, "PL203", "an iterator that outlives a break")
            known.walks_generators = False
            attempt.machine.forget_steps()
        except NeedsPlainSizes as needs:
            attempt.machine.forget_steps()
            why = f"constant, because {needs.name}() takes no symbolic number: "
            constants = [("sizes and numbers", why + needs.reason.splitlines()[0])]
            plain = frame.varied.plainly() if frame.varied else Variation(False, plain=True)
            frame = replace(frame, varied=plain)
        except (RecursionError, MemoryError) as error:
            return _plain(strict, "PL202", f"{type(error).__name__} in capture")
        except (PlainFrame, Break) as stop:
            # A Break here: something alive cannot be rebuilt.
            if conditional.forget(attempt.machine) or attempt.gives_up_inside():
                continue
            record = BreakRecord(stop.code, stop.reason, stop.where or attempt.machine.where)
            strict(record)
            # A frame that inspects itself does so for any values.
            rows = [] if stop.code == "GB132" else attempt.rows()
            return Capture("plain", rows, plain=record)
        finally:
            attempt.release()
    return _plain(strict, "PL202", "capture restarted too often")


def _plain(strict: Callable[[BreakRecord], None], code: str, reason: str) -> Capture:
    record = BreakRecord(code, reason, None)
    strict(record)
    return Capture("plain", [], plain=record)


class _Attempt:
    """One walk over the frame."""

    def __init__(
        self,
        frame: FrameInput,
        backend: Backend,
        make_resume: ResumeFactory,
        extent: Callable[..., Any],
        strict: Callable[[BreakRecord], None],
        known: EarlierWalks,
    ) -> None:
        self.input = frame
        self.backend = backend
        self.make_resume = make_resume
        self.extent = extent
        self.strict = strict
        self.known, self.forced = known, known.forced
        self.resumes_inside = known.resumes_inside
        builtins = frame.globals.get("__builtins__", __builtins__)
        names = builtins.__dict__ if isinstance(builtins, types.ModuleType) else builtins
        scope = Scope(frame.globals, names)
        self.tracer = Tracer(frame.code.co_qualname, outliving=autocast_cache.outliving())
        self.machine = Machine(self.tracer, scope, frame.varied)
        self.machine.stops, self.machine.refused = known.stops, known.refused
        self.machine.not_skipped = known.not_skipped
        self.machine.by_data = known.by_data
        self.machine.walks_generators = known.walks_generators
        self.machine.claims_compiling = frame.claims_compiling
        self.machine.follows_iterators = frame.follows_iterators
        self.machine.assumed = frame.assumed or {}
        self.machine.handling.outside = sys.exception() is not None
        self.root = self._root(scope)
        self.grad_before = torch.is_grad_enabled()
        self.graph: Graph | None = None
        self.raises = False  # whether the program may raise what Python then raises
        self.read = ""  # what Python reads of the graph's history at the break
        self.inside = False  # whether a break leaves an inlined function
        self.ends: Ends | None = None
        self.sides: dict[Any, dict[bool, Any]] = {}

    def _root(self, scope: Scope) -> Frame:
        code, m = self.input.code, self.machine
        decoded = decode(code)
        m.where = decoded.instrs[decoded.entry].where
        m.guard("state", None, snapshot())
        closure = tuple(
            m.real_cell(cell, Source("cell", None, name))
            for name, cell in zip(code.co_freevars, self.input.closure or (), strict=True)
        )
        arguments = Arguments(m, argument_names(code), self.input.locals)
        frame = make_frame(code, scope, {}, closure)
        frame.locals = arguments
        for name in code.co_cellvars:
            if name in arguments:
                frame.cells[name].content = arguments.pop(name)
                frame.cells[name].name = name
        return frame

    def rows(self) -> list[Row]:
        return symbolic_numbers.rows(self.machine)

    def gives_up_inside(self) -> bool:
        """Let the next walk break outside of inlined functions, if this one broke inside."""
        if self.inside:
            self.machine.forget_steps()
            self.known.resumes_inside = False
        return self.inside

    def release(self) -> None:
        """Drop the user's objects, which our exceptions and closures would hold in cycles."""
        self.machine.release()
        self.root.locals.clear()  # unread arguments and their dict refer to each other
        self.root.locals, self.root.cells, self.root.stack = {}, {}, []
        self.root.result = self.root.yielded = None
        self.root.handling.clear()
        self.root.loops.clear()
        if self.ends is not None:
            self.ends.let_go()
        let_go()

    def run(self) -> Capture:
        m, before = self.machine, snapshot()
        m.frames.append(self.root)
        try:
            with walk_warnings.walking():
                found = self._walk()
            if m.open_generators:
                raise GeneratorLeaves
            if isinstance(found, int):
                return self._broken(found, self.forced[found])
            return self._returned(found)
        except BreaksInside as breaks:
            conditional.leave(m)
            self.inside = True
            return self._broken(m.root_index, breaks.stop, breaks.frames[1:])
        finally:
            for context in reversed(m.contexts):
                while context.undo:
                    context.undo.pop()()
            torch._C._set_grad_enabled(self.grad_before)
            assert snapshot() == before, "capture changed the interpreter's state"

    def _held(self) -> list[Any]:
        return [*self.input.locals, *frame_inspection.contents(self.input.closure)]

    # -- walking -----------------------------------------------------------------------------------
    def _refuse(self) -> None:
        """Raise PlainFrame for kinds of code that are not walked."""
        m, f = self.machine, self.root
        if f.decoded.is_generator:
            raise PlainFrame(
                "PL201", "a frame that yields or awaits stays alive between calls", m.where
            )
        if has_two_of_a_name(f.code):
            raise PlainFrame(
                "PL203",
                "a comprehension has a name of its own that its closure has as well",
                m.where,
            )
        looks = frame_inspection.looks_at_itself(f.code, self.input.globals, self._held())
        if looks is not None:
            raise PlainFrame("GB132", f"the frame inspects itself with {looks[0]}", looks[1])

    def _walk(self) -> Value | int:
        """The returned Value, or the index of the instruction to break at."""
        m, f = self.machine, self.root
        self._refuse()
        instrs = f.decoded.instrs
        named = zip(argument_names(self.input.code), self.input.locals, strict=True)
        ends = self.ends = Ends(f.decoded, f, dict(named))
        while f.result is None:
            instr = instrs[f.pc]
            if (ends.held or m.journal.unhooked) and (ended := ends.just_dropped(m, f)) is not None:
                reason = f"the frame drops its last reference to a {type(ended).__name__}"
                self.forced[m.root_index] = Break("GB139", reason, m.where)
                raise Restart
            if instr.index in self.forced:
                conditional.leave(m)
                m.where = instr.where
                m.guard_all(self.forced[instr.index].guards)
                return instr.index
            stack, activity = list(f.stack), m.activity
            f.pc += 1
            m.where = instr.where
            m.root_index = instr.index
            try:
                m.step(f, instr)
            except (RecursionError, MemoryError) as error:
                # Capture recursed deeper, or allocated more at once, than the program will.
                reason = f"{type(error).__name__} during capture"
                self.forced[instr.index] = Break("GB117", reason, m.where)
                raise Restart from None
            except Unsure as error:
                reason = f"a name in a dict with keys whose class defines equality: {error}"
                self.forced[instr.index] = Break("GB137", reason, m.where)
                raise Restart from None
            except Break as stop:
                if isinstance(stop, Thrown) and m.catch(f, instr, stop):
                    continue
                conditional.leave(m)
                if stop.where is None:
                    stop.where = instr.where
                if isinstance(stop, LooksAtFrame) and not stop.inlined:
                    raise PlainFrame(stop.code, stop.reason, stop.where) from None
                if self.resumes_inside and (deep := level(m, stop)):
                    m.stops[stop.frames[deep].begun] = stop
                    raise Restart from None
                made = made_here(m, f)
                if made is not None:  # Python raises the exception being handled
                    self.forced.setdefault(m.handling.raised_at[made], stop)
                    raise Restart from None
                if m.modes and m.modes[0].index != instr.index:  # a mode is not entered again
                    reason = f"a torch function mode is active at a break: {stop.reason}"
                    self.forced[m.modes[0].index] = Break("GB110", reason, stop.where)
                    raise Restart from None
                self.forced[instr.index] = stop
                if m.activity != activity:
                    raise Restart from None
                f.stack = stack  # nothing else has happened since
                return instr.index
        return f.result

    # -- the two ends ------------------------------------------------------------------------------
    def _returned(self, result: Value) -> Capture:
        m = self.machine
        if m.modes:
            raise PlainFrame("PL203", "the frame returns inside a with block", m.where)
        m.journal.effects[:] = [one for one in m.journal.effects if not is_undone(one)]
        if not self.tracer.recorded and (m.journal.effects or not m.inputs):
            record = BreakRecord("PL204", "no tensor operation in this frame", None)
            return Capture("plain", types_only(self.rows()), plain=record)
        mode = torch.is_grad_enabled()
        assert self.ends is not None
        ends = self.ends.at_the_end(m, self.root, order_of(self.input.code))
        outside = m.journal.effects or m.contexts or mode != self.grad_before or m.heap.data
        if not outside and not ends:
            made = self._direct(result)
            if made is not None:
                return made
        self._only_direct()

        def tail(e: Emitter) -> None:
            e.drop(ends)
            e.asm.return_value()

        return self._emit(lambda e: e.push(result), tail, mode, [])

    def _only_direct(self) -> None:
        """Raise PlainFrame if a capture of another kind is of no use."""
        if self.input.assumed:
            raise PlainFrame("PL203", "branches are assumed in direct captures only")

    def _direct(self, result: Value) -> Capture | None:
        trees = Trees()
        try:
            tree = trees.of(result)
        except NotConstant:
            return None
        if any(output.ghost._store.borrowed for output in trees.outputs):
            return None
        numpy_arrays.check_shared(self.machine, trees.outputs, [])
        graph = self._finish(trees.outputs)
        program_inputs = self._input_sources() if graph else []
        offset = len(program_inputs)
        tree = shift(tree, offset)
        made = Capture("direct", [], graph, None, program_inputs + trees.inputs, offset, tree)
        self._compile(made)
        return made

    def _compile(self, made: Capture) -> None:
        if made.graph is not None:
            clean = not made.graph.mutates or self.machine.fragile
            made.graph.late = made.graph.mutates and clean
            made.program = self.backend(made.graph)
            made.rerun = clean or getattr(made.program, "tells_begun", False)
            made.symbolic = symbolic_numbers.descriptions(self.machine, made.graph)
            if made.graph.mutates or self.machine.heap.replaced:
                self._guard_aliases()
            if made.graph.mutates:
                for source, tensor in self.tracer.followed(made.graph.needs_grad):
                    self.machine.guard("history", source, history(tensor))
            checks = self.tracer.may_raise_since(0) or made.graph.required
            raises = clean and bool(checks)
            program = rollback.again(made.program, made.graph, raises) if clean else made.program
            if any(one.usual for one in made.graph.required):
                program = self.machine.varied.usual.counted(program)
            saves = made.graph.needs_grad or made.graph.spends
            self.raises = raises or saves
            if saves:
                # Loaded at first use: programs for inference save nothing.
                from ..runtime.autograd import saving_hooks

                seen = self.machine.journal.effects or self.machine.saves_observed
                program = saving_hooks.exact(program, made, bool(seen))
            made.program = program
        else:
            made.program = helpers.nothing
        alias_guards.guard(self.machine)
        made.rows = self.rows()
        self.machine.numbers.sealed = True

    def _input_sources(self) -> list[Source]:
        """Sources of the program's arguments: tensors, then numbers."""
        return self._tensor_sources() + [value.source for value in self._numbers() if value.source]

    def _tensor_sources(self) -> list[Source]:
        return [value.source for value in self.machine.inputs if value.source is not None]

    def _numbers(self) -> list[Value]:
        """The Python numbers among the program's arguments."""
        graph, held = self.graph, self.machine.numbers.held
        symbols = graph.numbers if graph is not None else []
        return [held[self.tracer.facts.symbols[symbol][1]] for symbol in symbols]

    def _guard_aliases(self) -> None:
        sources = tuple(self._tensor_sources())
        if len(sources) > 1:
            self.machine.guard("distinct", None, sources)

    def _finish(self, outputs: list[Tensor]) -> Graph | None:
        backward.check_own_leaves(self.machine, outputs)
        self.machine.numbers.give(self.machine, outputs)
        conditional.check(self.machine, outputs)
        ghosts = [lift(self.machine, value.ghost) for value in outputs]
        graph = self.tracer.finish(ghosts, True, self.read)
        conditional.check_backward(self.machine, graph)
        for ghost, version, index in self.machine.journal.shown:
            if ghost._version != version or (self.machine.heap.data and graph.mutates):
                raise MustBePython(index, "GB103", "a tensor that is shown and then written")
        if self.machine.heap.data or self.machine.heap.replaced:
            # Loaded at first use: programs of today do without `.data`.
            from .models import legacy

            legacy.check(self.machine, graph, outputs)
        seen = outputs or graph.mutates or graph.random or self.machine.saves_observed
        if not (seen or self.tracer.may_raise_since(0)):
            return None  # nothing visible is computed
        self.graph = graph
        if graph.mutates and graph.overlaps:
            raise PlainFrame(
                "FB310", "tensors that share memory are written to", self.machine.where
            )
        graph.apart = graph.mutates  # a guard will check it
        return graph

    def _broken(self, index: int, stop: Break, inlined: tuple[Frame, ...] = ()) -> Capture:
        """A break at the root's instruction, or inside the functions that its call has entered."""
        code, f, m = self.input.code, self.root, self.machine
        later = "Tensor.grad_fn" if reads_nodes(f.decoded) else ""
        self.read = stop.reason if stop.reads_history else later
        looks = frame_inspection.called_that_looks(code, self.input.globals, self._held())
        if looks is not None or stop.looks:
            who = looks or "a function"
            raise PlainFrame("GB132", f"{who} that is called here inspects this frame", stop.where)
        block = split_block(m)
        if block is not None and block.index not in self.forced:
            why = f"the autocast block caches casts of weights, and breaks: {stop.reason}"
            self.forced[block.index] = Break("GB110", why, f.decoded.instrs[block.index].where)
            raise Restart
        record = BreakRecord(stop.code, stop.reason, stop.where, stop.inlined)
        self._only_direct()
        reason = "a comprehension's variable is in a cell's place" if f.swapped else can_break(code)
        if reason is not None:
            raise PlainFrame("PL203", f"{stop.reason}; {reason}", stop.where)
        self.strict(record)
        stack = with_handlers(f.stack, m.handling.stack)
        if not inlined:
            stack = with_method(stack, f.decoded.instrs[index])
        inner = continuation(m, inlined, stop, self.make_resume) if inlined else None
        handed = None if inner is None else inner.values
        left = LeftFrame(m, f, index, stack, stop.code == "GB108", handed)

        def resume_for(target: int, path: Path) -> ResumeSpec:
            spec = left.resume_at(self.make_resume, stop.reason, stop.where, target, path)
            if stop.code == "GB105":
                note_side(self.sides, code, path, spec)
            return spec

        cells = {name: cell for name, cell in f.cells.items() if name in code.co_cellvars}

        def restore(e: Emitter) -> None:
            e.build(m.load_cell(cell) for cell in cells.values() if cell.content is not None)
            e.build(left.restored.values())
            if inner is not None:
                e.build(inner.values)
            with e.failing("halfway"):  # arguments are replaced
                e.store_locals(cells, left.restored)
                e.push_stack(stack)
                if inner is not None:
                    inner.begin(e.asm, [partial(e.push, value) for value in inner.values])
            e.drop_all_but(left.restored, argument_names(code))

        def tail(e: Emitter) -> None:
            wraps, end = self._wraps(stop), None if inner is None else inner.end
            break_tail(e.asm, code, index, resume_for, wraps, self.extent, left.shape, end)

        mode = torch.is_grad_enabled()
        return self._emit(restore, tail, mode, [record])

    def _wraps(self, stop: Break) -> bool:
        """Whether the breaking call may run frames worth capturing."""
        return bool(stop.inlined) or stop.code in ("GB107", "GB110", "GB112")

    # -- emission ----------------------------------------------------------------------------------
    def _emit(
        self,
        values: Callable[[Emitter], None],
        tail: Callable[[Emitter], None],
        mode: bool,
        breaks: list[BreakRecord],
    ) -> Capture:
        m, code = self.machine, self.input.code
        contexts = [c for c in m.contexts if c.cls not in GRAD_MODES]
        for context in reversed(contexts):
            context.undo.pop()()
        if torch.is_grad_enabled() != self.grad_before:
            self.tracer.grad_mode(self.grad_before)
        for clock, recorded in m.journal.clocks:
            if self.tracer.recorded > recorded:
                # The program would run all operators before it.
                raise MustBePython(clock, "GB103", "a clock that is read between operators")
        dry = Emitter(Assembler(code), m, self.root)
        dry.call_early(m.journal.effects, False)
        self._body(dry, values, mode, contexts)
        outputs = dry.outputs
        numpy_arrays.check_shared(m, outputs, dry.arrays)
        graph = self._finish(outputs)
        made = Capture("code", [], graph, breaks=breaks)
        self._compile(made)
        real = Emitter(Assembler(code), m, self.root)
        where = "before"
        real.call_early(m.journal.effects, self.raises)
        if graph is not None:
            given = [*m.inputs, *self._numbers()]
            real.clear(m.journal.cleared, [*given, *dry.loaded])
            where = "halfway" if graph.mutates or graph.random else where
            real.call_program(made.program, given, outputs, made.rerun, where, graph.spends)
        with real.failing(where):
            real.preload(dry.loaded)
        seen = m.journal.effects or contexts or mode != self.grad_before
        with real.failing("halfway" if seen else where):
            self._body(real, values, mode, contexts)
        tail(real)
        real.handle_failures()
        made.rerun, made.sides = False, self.sides
        made.assembler, made.code = real.asm, real.asm.finish()
        return made

    def _body(
        self, e: Emitter, values: Callable[[Emitter], None], mode: bool, contexts: list[Any]
    ) -> None:
        m = self.machine
        e.replay(m.journal.effects)
        if mode != self.grad_before:
            e.asm.call_const(torch._C._set_grad_enabled, lambda: e.asm.load_const(mode))
            e.asm.pop_top()
        e.enter_contexts(contexts)
        values(e)
        e.bind_cells(self.input.code.co_cellvars)
