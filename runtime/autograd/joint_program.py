"""A forward and a backward program as one autograd node.

`JointProgram(plan, forward, backward, replay)` is called like any program. The forward runs without
gradients inside a node (the C++ part of `torch.autograd.Function`, without its Python wrapper),
which saves the tensors that the backward reads. The backward is built when autograd first needs it,
once for each set of results that have a gradient. If the backward is itself differentiated, the
torch-level calls run again under autograd (`replay`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch.autograd.function import BackwardCFunction
from torch.utils.hooks import RemovableHandle

from ...ir.trace.autocast_cache import Casts, casts_now
from ..errors import Begun, CheckError, GraftError
from ..executor.lower import consuming
from ..process import faults
from . import (
    current_inputs,
    custom_function,
    lasting,
    leaf_hooks,
    passing,
    reentrant,
    rng_state,
    saving_hooks,
    second_order,
)
from .edge_order import arranged
from .freed_graph import used_up
from .held_inputs import Held, Holder, gone, inputs_of
from .joint_plan import Plan, chosen, laid_out, number_of, parts_decide, with_gaps, without_history
from .result_nodes import as_seen, function_of, mark_dirty, with_nodes
from .rollback import begins, unless_marked
from .second_order import all_ordinary

Tensors = tuple[torch.Tensor, ...]
# A backward program, and for each wanted input the position of its gradient among the results.
Backward = tuple[Callable[..., Tensors], Sequence[int | None]]
# A program that takes its arguments in a list and drops each after its last use.
Consumer = Callable[[list[Any]], Tensors]
# State of one call: the numbers that the backward takes, those of the call, and the inputs that are
# kept beside the saved ones for a backward that is itself differentiated.
Call = tuple[tuple[Any, ...], tuple[Any, ...], Held]
_CALLED_AGAIN = (
    "Its backward runs the forward's calls again: the gradients are right, but take longer."
)
_is_any_autocast = torch._C._is_any_autocast_enabled  # type: ignore[attr-defined]
# The saved inputs of a node and the state of its call, with which the calls can run again.
Kept = tuple[Sequence[torch.Tensor], Call]


class Twin(Protocol):
    """The same computation in eager, for comparison under GRAFTJIT_CHECK."""

    def begin(self, inputs: Sequence[Any]) -> Any:
        """Compute the results in eager, with their own history."""

    def values(self, begun: Any, inputs: Sequence[Any], made: Sequence[Any]) -> None:
        """Raise CheckError if the forward's pieces or the written inputs differ from eager."""

    def compare(self, begun: Any, given: Sequence[Any], found: Sequence[Any]) -> None:
        """Raise CheckError if gradients of the inputs (None: not needed) differ from eager."""


class GraftBackward(BackwardCFunction):
    """The autograd node. `joint` is the program that made it, `call` the state of one call."""

    joint: JointProgram
    call: Call
    # the saved tensors after a backward that has not freed them
    remaining: lasting.Pairs | None = None
    # what backwards have freed, as bits of positions in `Plan.frees`
    freed: int = 0
    # a backward, by its number, and those of the results that are its inputs, as bits
    asked: tuple[int, int] = -1, 0
    answers: tuple[int, dict[int, bool]] = -1, {}  # see `passing.needed_inputs`
    # the saved tensors, where a result may not need one that was written to
    own: lasting.Pairs = ()
    # of the saved tensors, if saved-tensor hooks were active
    layouts: Sequence[saving_hooks.Layout | None] = ()
    # the inputs that the backward reads as they are when it runs
    current: current_inputs.Kept = (), (), ()
    # what it represents of eager's nodes, once it has been differentiated with a history
    passed: passing.Passed | None = None
    # the results as the program has them, by piece, if they have nodes of their own
    seen: Mapping[int, Any] = MappingProxyType({})

    def drop(self) -> None:
        """Free what is saved, unless autograd must retain the graph."""
        self.remaining, self.own = None, ()
        self.maybe_clear_saved_tensors()
        numbers, further, held = self.call
        if held and self.joint.plan.saved and not lasting.keeps_graph():
            self.call = numbers, further, []

    def apply(self, *gradients: Any) -> Any:
        """The gradients of the inputs, given those of the results (None: no gradient). Autograd's
        engine calls this."""
        joint = self.joint
        if gradients[0] is None and all(one is None for one in gradients):
            # A node of several results leads here, and those with a gradient do not depend on this
            # one: eager mode does not reach it, so it neither frees anything nor raises.
            joint.passed_by(self)
            found = (None,) * len(self.needs_input_grad)
        elif not passing.takes_all() and passing.ends_at(self, joint):
            return joint.ends(self, lasting.ALL)
        else:
            found = self.gradients_of(gradients)
            if not joint.may_leave_out or not joint.leaves_out(gradients):
                return found
        leaf_hooks.hold_back(self, found)
        return found

    def gradients_of(self, gradients: Sequence[Any]) -> Any:
        """As `apply`."""
        if torch.is_grad_enabled():
            found = self.joint.again(self, gradients, True, "a backward with create_graph=True")
            if self.passed is not None:
                self.passed.run(self, gradients)
            return found
        if not all_ordinary(gradients):
            with torch.enable_grad():
                found = self.joint.again(
                    self, gradients, False, "gradients that are not plain tensors"
                )
            self.joint.release(self, gradients)
            return found
        if _is_any_autocast():
            return self.joint.casts(self, gradients)
        return self.joint.backwards(self, gradients)


def node_of(joint: JointProgram) -> Any:
    """`torch.autograd.Function.apply` in C++ for one program, with nodes of a class of its own."""
    name = joint.node_name
    bases = (custom_function.Following, GraftBackward) if joint.plan.custom else (GraftBackward,)
    bases = (reentrant.Refusing, *bases) if joint.plan.refusing else bases
    return function_of(joint.forwards, type(name, bases, {"joint": joint}))


def _tried(work: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
    """(result, None) or (None, exception), so that the caller does not raise inside a handler."""
    try:
        return work(*arguments), None
    except Exception as error:
        return None, error


class JointProgram:
    """The callable for one graph. It takes the graph's tensors and numbers and returns its outputs.

    `tells_begun`: it raises `Begun` if it may have written to its inputs, or if a hook for saved
    tensors raised. `packs`: such hooks see what it saves."""

    tells_begun = packs = True
    # makes a chain of nodes, if some leaves have hooks (`runtime.autograd.leaf_order`)
    by_leaves: Callable[[Sequence[Any]], Any] | None = None

    def __init__(
        self,
        plan: Plan,
        forward: Callable[..., Tensors],
        backward: Callable[[Sequence[int]], Backward],
        replay: Callable[..., Tensors],
        tell: Callable[[str], None],
        tail: Callable[..., Tensors] | None = None,
        twin: Twin | None = None,
        late: bool = False,
    ) -> None:
        """`backward(missing)` builds the backward for gradients of which those are missing.

        `tail(*inputs, *pieces, *numbers)` computes the results; None if they are the pieces.
        `late`: if the forward raises, it has not written anything.
        """
        self.plan, self.replay, self._tell, self._tail = plan, replay, tell, tail
        self._twin, self._forward, self._build = twin, forward, backward
        if plan.written:
            self._forward = forward if late else unless_marked(forward)
            self._tail = tail and begins(tail)
        self._programs: dict[tuple[int, ...], Backward] = {}
        self._backwards: dict[tuple[int, ...], tuple[Consumer, list[tuple[int, int]]]] = {}
        self._plain = tuple(at for at in range(plan.n_pieces) if at not in plan.results)
        saved = {at for kind, at in plan.saved if kind == "input"}
        self._held = Holder(plan.kept_beside(saved), plan.parameters, plan.before)
        places = [place for place, (kind, _) in enumerate(plan.saved) if kind == "input"]
        self._inputs_saved = [plan.saved[place][1] for place in places]
        self._places_of_inputs = places  # among the saved tensors
        self._saved_inputs = chosen(places)
        self._current = [at for kind, at in plan.saved if kind == "current"]
        self._constants = [tensor for kind, tensor in plan.saved if kind == "constant"]
        self._kept = chosen(self._places())
        # (place among the saved tensors, position) of the results that are saved
        self._results_saved = [
            (place, plan.results.index(at))
            for place, at in enumerate(self._places())
            if at in plan.results
        ]
        # Otherwise the node may run as often as autograd calls it.
        self._saves = bool(len(plan.saved) > len(self._current) or plan.witnesses or plan.frees)
        # whether to note what each backward frees
        lasts = lasting.lasts(plan.frees, len(plan.results))
        self._notes = self._saves and (lasts or plan.has_own_nodes)
        self._skips = parts_decide(plan)
        self.may_leave_out = None in plan.gradients or len(plan.results) > 1 or self._skips
        self._only_tensors = not plan.numbers and plan.n_numbers == 0
        passed = arranged(plan.wanted, plan.leaves)
        # for each wanted input, its position among the arguments of the node
        self._edges = {at: number for number, at in enumerate(passed)}
        passed += tuple(at for at in plan.dirty.values() if at not in self._edges)
        self._passed = chosen(passed)
        # The gradients as programs, for a backward that is itself differentiated.
        self.second: second_order.SecondOrder | None = None
        # What gradients lead to where the calls run again.
        self.histories: dict[Any, Any] = {}
        self._node = node_of(self) if plan.results else None
        self._apart: Callable[[Sequence[Any]], tuple[Any, ...]] | None = None
        if plan.has_own_nodes:
            self._apart = with_nodes(plan.nodes, plan.owners, plan.results, plan.dirty)

    def _places(self) -> list[int]:
        """The positions of the saved tensors in the sequence of forward results, constants and
        inputs."""
        plan = self.plan
        made = plan.n_pieces + sum(kind == "made" for kind, _ in plan.saved)
        begin = {"output": 0, "made": plan.n_pieces, "input": made + len(self._constants)}
        numbers = iter(range(made, made + len(self._constants)))
        places = [
            next(numbers) if kind == "constant" else begin[kind] + at
            for kind, at in plan.saved
            if kind != "current"
        ]
        return places + list(plan.witnesses)

    @property
    def n_inputs(self) -> int:
        return self.plan.n_tensors

    @property
    def node_name(self) -> str:
        """The name of the node that has the saved tensors."""
        plan = self.plan
        return plan.nodes[0] if plan.nodes and not plan.has_own_nodes else "SharedBackward"

    def __call__(self, *inputs: Any) -> Any:
        if not torch.is_grad_enabled():
            with torch.enable_grad():
                return self(*inputs)
        if self._node is None:
            with torch.no_grad():
                pieces = self._forward(*inputs)
        else:
            try:
                pieces = self._joined(*self._passed(inputs), inputs)
            except Exception as error:
                if saving_hooks.raised_by(error, JointProgram.forwards.__code__):
                    raise Begun(error) from None
                raise
            if self._apart is not None:
                pieces = self._apart(pieces)
        if self._tail is None:
            return pieces
        n = self.plan.n_tensors
        return self._tail(*inputs[:n], *pieces, *inputs[n:])

    # -- forward

    def _joined(self, *arguments: Any) -> Any:
        """The pieces, with the node as their history."""
        # no hook at all has been made in most processes
        chain = self.by_leaves and RemovableHandle.next_id and self.by_leaves(arguments)
        return chain(arguments) if chain else self._node(*arguments)  # type: ignore[misc]

    def forwards(self, node: Any, *arguments: Any) -> Tensors:
        """Run the forward, save what the backward reads in the node, and return the pieces. The
        last argument is the inputs; before it are those with an edge."""
        plan, inputs = self.plan, arguments[-1]
        if plan.random:
            node.random = rng_state.states(plan.random)
        if self._twin is not None:
            node.begun = saving_hooks.without(self._twin.begin, inputs)
        held = self._held(inputs)
        made = self._forward(*inputs)
        rest = begins(self._rest) if plan.written else self._rest
        return rest(node, inputs, held, made)

    def _rest(self, node: Any, inputs: Sequence[Any], held: Held, *results: Tensors) -> Tensors:
        """The work after the forward has run. `results`: its results; of a segment, those of the
        segment and of the whole forward, from which numbers are read."""
        plan, made = self.plan, results[0]
        if self._twin is not None:
            self._twin.values(node.begun, inputs, made)
        if plan.dirty:
            made = self._dirty(node, made, inputs)
        node.to_save = self._kept((*made, *self._constants, *inputs))
        if saving_hooks.active() is not None:
            node.layouts = saving_hooks.layouts(node.to_save)
        elif plan.needs:
            node.own = lasting.with_versions(node.to_save, self._places_of_inputs)
        if self._current:
            node.current = current_inputs.kept(inputs, made, self._current, plan.parameters)
        node.materialize_grads = False
        node.call = (
            ()
            if self._only_tensors
            else tuple([number_of(where, inputs, results[-1]) for where in plan.numbers]),
            () if self._only_tensors else inputs[plan.n_tensors :],
            held,
        )
        pieces = made[: plan.n_pieces]
        plain = self._plain
        if plan.tracked:
            plain = *plain, *without_history(plan, node.call[0])
        if plain:
            node.non_differentiable = tuple([pieces[at] for at in plain])
        return pieces

    def _dirty(self, node: Any, made: Tensors, inputs: Sequence[Any]) -> Tensors:
        """The forward's results, with written inputs replaced by the input tensors themselves."""
        dirty = self.plan.dirty
        mark_dirty(node, tuple([inputs[at] for at in dirty.values()]))
        return tuple([inputs[dirty[at]] if at in dirty else one for at, one in enumerate(made)])

    # -- backward

    def leaves_out(self, gradients: Sequence[Any]) -> bool:
        """Whether inputs that require a gradient may get none, given these gradients, of which one
        is there."""
        plan = self.plan
        missing = any(gradients[at] is None for at in plan.results)
        return None in plan.gradients or missing or self._skips

    def backwards(self, node: Any, gradients: Sequence[Any], keep: bool = False) -> Sequence[Any]:
        """The gradients of all inputs. `keep`: what is saved."""
        plan = self.plan
        if node.passed is not None:
            node.passed.run(node, gradients)
        given, orders = gradients, plan.orders
        if self._plain:
            given = [gradients[at] for at in plan.results]
        missing = tuple([at for at, one in enumerate(given) if one is None])
        found = self._backwards.get(missing)
        if found is None:
            found, error = _tried(self._built, missing)
            # An internal error: use the backward of the calls.
            if found is None:
                return self._without(node, gradients, error, "could not be built")
        run, places = found
        arguments = list(self._saved_of(node, gradients))
        if node.layouts:
            arguments = saving_hooks.restored(arguments, node.layouts)
        del arguments[len(plan.saved) - len(self._current) :]
        if self._current:
            arguments += current_inputs.read(node.current)
        inputs = self._saved_inputs(arguments)
        call = numbers, _, _ = node.call
        if not keep:
            self.release(node, gradients)
        failed: Exception | None = None
        try:
            for one, order in zip(given, orders, strict=True):
                if one is not None:
                    arguments.append(
                        one if order is None and one.is_contiguous() else laid_out(one, order)
                    )
            arguments += numbers
            made = self._run(run, arguments, node, gradients, (inputs, call))
        except Exception as raised:
            failed = raised
        # If the calls raise too, this is eager's error; else an internal error.
        if failed is not None:
            return self._without(node, gradients, failed, "failed", (inputs, call))
        asked = node.needs_input_grad
        returned: list[Any] = [None] * len(asked)
        for at, number in places:
            if asked[at]:
                returned[at] = made[number]
        # a hook may have changed what was saved
        if self._twin is not None and not (node.layouts or current_inputs.written(node.current)):
            self._twin.compare(node.begun, given, self._by_input(returned))
        return tuple(returned)

    def _saved_of(self, node: Any, gradients: Sequence[Any]) -> Sequence[torch.Tensor]:
        """The tensors that a node has saved. Raises where these results have freed them."""
        if node.remaining is None and not node.own:
            return node.saved_tensors if self._saves else ()
        present, needed = self._present(gradients), passing.needed(node, self)
        return lasting.saved_of(node, present, needed, self.plan)  # type: ignore[no-any-return]

    def release(self, node: Any, gradients: Sequence[Any]) -> None:
        """Drop what is saved, unless autograd retains the graph or other results need it."""
        needed = passing.needed(node, self) if self._saves else lasting.ALL
        if self._notes or node.remaining is not None or needed != lasting.ALL:
            lasting.keep(node, self._present(gradients), needed, self.plan, self._places_of_inputs)
        elif not lasting.keeps_graph():
            node.freed = lasting.ALL
        self._dropped(node)

    def ends(self, node: Any, own: int) -> Sequence[Any]:
        """Gradients that no one uses: a backward ends at these results, as bits. Eager mode runs
        their operators."""
        plan, asked = self.plan, own << self.plan.n_tensors
        some = [at for at in range(len(plan.results)) if own >> at & 1]
        used = lasting.run_by(plan.frees, some, asked)
        if used & node.freed:
            raise used_up()
        if not used:
            self.passed_by(node)
        elif node.remaining is not None or not node.freed:
            lasting.saved_of(node, some, asked, plan)
            lasting.keep(node, some, asked, plan, self._places_of_inputs)
            self._dropped(node)
        return (None,) * len(node.needs_input_grad)

    def _dropped(self, node: Any) -> None:
        """Free what is saved, if nothing can need it any more."""
        if node.remaining is None:
            node.drop()
        else:
            node.maybe_clear_saved_tensors()

    def passed_by(self, node: Any) -> None:
        """Keep what is saved: autograd frees it after a run without any gradient too."""
        if self._saves and node.remaining is None:
            # autograd's error: there is nothing left to keep
            with contextlib.suppress(RuntimeError):
                lasting.keep(node, (), lasting.ALL, self.plan, self._places_of_inputs)

    def _present(self, gradients: Sequence[Any]) -> list[int]:
        return [at for at, one in enumerate(self.plan.results) if gradients[one] is not None]

    def _run(
        self, run: Any, arguments: list[Any], _node: Any, _gradients: Sequence[Any], _kept: Kept
    ) -> Any:
        """Run the backward; the gradients by their positions."""
        return run(arguments)

    def _by_input(self, gradients: Sequence[Any]) -> Sequence[Any]:
        """The gradients that the node returns, by position of the program's inputs."""
        found: list[Any] = [None] * self.plan.n_tensors
        for at, number in self._edges.items():
            found[at] = gradients[number]
        return found

    def program_for(self, missing: tuple[int, ...]) -> Backward:
        """The backward for gradients of which those are missing."""
        found = self._programs.get(missing)
        if found is None:
            program, places = self._build(missing)
            if self._skips:
                program = with_gaps(program, places, missing, self.plan)
            found = self._programs.setdefault(missing, (program, places))
        return found

    def _built(self, missing: tuple[int, ...]) -> tuple[Consumer, list[tuple[int, int]]]:
        """The backward for gradients of which those are missing, and (input, position of its
        gradient) pairs."""
        program, places = self.program_for(missing)
        run = consuming(program)
        pairs = zip(self.plan.wanted, places, strict=True)
        made = run, [(self._edges[at], number) for at, number in pairs if number is not None]
        return self._backwards.setdefault(missing, made)

    def _without(
        self,
        node: Any,
        gradients: Sequence[Any],
        error: Exception,
        what: str,
        kept: Kept | None = None,
    ) -> Sequence[Any]:
        """The gradients of all inputs where no backward could be built or it failed. The calls run
        under autograd, and raise what eager raises."""
        if isinstance(error, CheckError):
            raise error
        why = f"its backward {what}: {type(error).__name__}: {error}"
        try:
            with torch.enable_grad():
                found = self.again(node, gradients, False, why, kept)
        except GraftError as another:
            raise another from error
        faults.warn_of_fault(self.plan.name, error, _CALLED_AGAIN)
        self.release(node, gradients)
        return found

    # -- a backward that is itself differentiated, or under autocast

    def casts(self, node: Any, gradients: Sequence[Any]) -> Sequence[Any]:
        """The gradients of all inputs, by operators that autocast sees, as eager's."""
        with torch.enable_grad():
            found = self.again(node, gradients, False, "autocast around the backward")
        if found is None:
            return self.backwards(node, gradients)
        self.release(node, gradients)
        return found

    def again(
        self,
        node: Any,
        gradients: Sequence[Any],
        taped: bool,
        why: str,
        kept: Kept | None = None,
        traced: bool = False,
    ) -> Any:
        """The gradients of all inputs, with a history if `taped`: by a program for that, for the
        autocast around the backward, or if `traced`; else the calls run again under autograd. None
        if that autocast changes nothing. `kept`: the saved inputs of a node that dropped them."""
        plan, fault = self.plan, None
        saved = self._saved_of(node, gradients) if kept is None else ()
        before, numbers, lost = self._inputs_before(kept or (self._saved_inputs(saved), node.call))
        casts = casts_now()
        why = f"{why} under autocast" if casts and taped else why
        results: list[Any] = [None] * len(plan.results)
        if taped:
            for place, at in self._results_saved:
                results[at] = as_seen(node, plan.results[at], saved[place])
        # Python code of a custom function may ask for autocast.
        if (traced or taped != bool(casts)) and kept is None and not (casts and plan.custom):
            arguments = node, gradients, before, numbers, lost, results
            done, fault = _tried(self._by_program, *arguments, taped, casts)
            if isinstance(fault, CheckError):
                raise fault
            if fault is None and not isinstance(done, str):
                return done
            why = f"{why}: {done if fault is None else fault}"
        if lost:
            found = None if taped else second_order.one_by_one(self, node, gradients)
            if found is None:
                raise gone(plan.name, min(lost))
            return found
        self._tell(why)
        made = second_order.by_calls(self, node, gradients, taped, before, numbers, results)
        found = self._returned(node, made)
        # If the calls raise too, this is eager's error; else an internal error.
        if fault is not None:
            faults.warn_of_fault(plan.name, fault, _CALLED_AGAIN)
        return found

    def edge_of(self, at: int) -> int:
        """The position of the edge of the node along which this input's gradient leaves."""
        return self._edges[at]

    def behind(self, function: Any, _at: int) -> Any:
        """The node of autograd that takes this input's gradient; `function`: what is behind the
        edge."""
        return function

    def _returned(self, node: Any, found: Mapping[int, Any]) -> Sequence[Any]:
        """What the node returns for these gradients of inputs."""
        returned: list[Any] = [None] * len(node.needs_input_grad)
        for at, gradient in found.items():
            returned[self._edges[at]] = gradient
        return tuple(returned)

    def _by_program(
        self,
        node: Any,
        gradients: Sequence[Any],
        before: Sequence[Any],
        numbers: Sequence[Any],
        lost: frozenset[int],
        results: Sequence[Any],
        taped: bool,
        casts: Casts,
    ) -> Sequence[Any] | str | None:
        """The gradients of all inputs by a program; or why the calls must run again; or None where
        autocast changes nothing."""
        plan = self.plan
        if self.second is None or not all_ordinary(gradients):
            return "gradients that are not plain tensors"
        if second_order.is_observed():
            return "a mode or hooks on saved tensors see single operators"
        given = [gradients[at] for at in plan.results]
        asked = list(filter(passing.needed_inputs(node, self), plan.wanted))
        if not asked or all(one is None for one in given):
            return self._returned(node, {})
        tangents = [
            None if one is None else laid_out(one, order)
            for one, order in zip(given, plan.orders, strict=True)
        ]
        random = node.random if plan.random else None
        begin = passing.next_number()
        with second_order.without_autocast(casts):
            arguments = before, numbers, lost, tangents, asked, results, random
            made = self.second.gradients(*arguments, taped, casts)
        if made is None or isinstance(made, str):
            return made
        found, how = made
        if taped:
            passing.follow(node, found, how.history, begin)
        return self._returned(node, dict(zip(asked, found, strict=True)))

    def replayed(self, node: Any, inputs: Sequence[Any]) -> Tensors:
        """Run the calls again with the random numbers and the autocast of the first run."""
        with contextlib.ExitStack() as around:
            around.enter_context(second_order.without_autocast(casts_now()))
            for kind, dtype in self.plan.casts:
                around.enter_context(torch.autocast(kind, dtype))
            if self.plan.random:
                around.enter_context(rng_state.replayed_outside_vmap(node.random))
            return self.replay(*inputs)

    def _inputs_before(self, kept: Kept) -> tuple[list[Any], Sequence[Any], frozenset[int]]:
        """The inputs of the call as they were before it (None: not kept), its numbers, and the
        inputs that were written to since."""
        plan = self.plan
        saved, (_, further, held) = kept
        # autograd has checked the versions of the saved ones
        before, lost = inputs_of(held, dict(zip(self._inputs_saved, saved, strict=True)))
        inputs = [before.get(at) for at in range(plan.n_tensors)]
        return inputs, further, lost.difference(plan.written)
