"""A jitted function that is called under transforms of torch.func (vmap, grad, vjp, jvp).

In: a call whose tensors torch has wrapped, one level per active transform. Out: its result, wrapped
the same way. `apply` takes the levels off one by one, innermost first: a level of vmap asks for the
batched call, a level of grad makes a node that asks for gradients, a level of jvp asks for tangents
(as torch's own rules for custom autograd functions do). Each of these is a function of the tensors
below that level (`runtime.autograd.transformed`), and the tensors at the bottom are plain: the
function for them is compiled like any other, as one graph. A function that cannot be one graph
without effects runs as written, so that torch transforms its operators (PL209).
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._functorch.pyfunctorch import GradInterpreter, VmapInterpreter
from torch.autograd import forward_ad
from torch.nn.utils.stateless import _reparametrize_module

from ..ir.graph.effects import root
from ..runtime import _native
from ..runtime.autograd import transformed
from ..runtime.errors import BreakError
from ..runtime.guards.interpreter_state import snapshot
from .refusals import refused_in
from .unit import UNITS, Unit
from .unit_events import place_of

_functorch = torch._C._functorch
_KINDS = _functorch.TransformType
_LIMIT = 64  # functions kept for one jitted function
_STEPS: dict[str, Callable[..., transformed.Run]] = {
    "vmap": transformed.batched,
    "vjp": transformed.pulled_back,
    "jvp": transformed.pushed_forward,
}


class AsWritten(Exception):
    """The function cannot be one graph without effects; the text says why."""


# -- compiled functions ----------------------------------------------------------------------------
class RegionUnit(Unit):
    """The unit of a function of plain tensors, which must be one graph without effects."""

    def __init__(self, region: Region, of: Unit, place: Any) -> None:
        super().__init__(region.name, of.config.replace(jit_syntax_level="STRICT"), place)
        self.region = region

    def _refused(self) -> tuple[str, str] | None:
        # The level of forward AD belongs to a transform, whose tensors do not come here.
        return refused_in(dataclasses.replace(snapshot(), forward_level=-1))

    def _accept(self, made: Any) -> None:
        """Raise BreakError if the capture does more than compute new tensors."""
        graph, reason = made.graph, ""
        # Gradients share memory with gradients of results in eager mode, too.
        derivative = set(self.region.chain) - {"vmap"}
        if made.kind != "direct":
            reason = "it has effects"
        elif graph is not None:
            memory = [id(root(node)) for node in graph.outputs]
            if graph.mutates or graph.written:
                reason = "it writes to a tensor"
            elif not derivative and (
                len(set(memory)) < len(memory) or set(memory) & {id(n) for n in graph.inputs}
            ):
                reason = "results share memory with arguments or with each other"
            elif graph.random and not self.region.may_draw:
                reason = "it draws random numbers, and would draw them again for a derivative"
            elif graph.random:
                self.region.random = True
        if not reason and not derivative and _has_input(made.tree[1]):
            reason = "it returns an argument"
        if reason:
            raise BreakError(reason)


def _has_input(tree: Any) -> bool:
    if not isinstance(tree, tuple) or not tree:
        return False
    return tree[0] == "input" or any(_has_input(part) for part in tree[1:])


class Region:
    """A chain of steps over one call of a function.

    place     the user's line for reports
    kinds     the levels of the call, outermost first
    chain     the kinds of the steps
    """

    def __init__(
        self,
        name: str,
        run: transformed.Run,
        owner: Unit,
        place: Any,
        kinds: tuple[Any, ...],
        chain: tuple[str, ...] = (),
    ) -> None:
        self.name, self.owner, self.place = name, owner, place
        self.kinds, self.chain = kinds, chain
        code = run.__code__.replace(co_name=name, co_qualname=name)  # type: ignore[attr-defined]
        self.run = types.FunctionType(
            code,
            run.__globals__,  # type: ignore[attr-defined]
            name,
            None,
            run.__closure__,  # type: ignore[attr-defined]
        )
        self.unit: RegionUnit | None = None
        self._callable: Any = None
        self.refused = ""  # why it cannot be one graph
        self.random = False  # it draws random numbers
        self.steps: dict[tuple[Any, ...], Region] = {}

    def step(self, kind: str, *options: Any) -> Region:
        """This function with one more step."""
        found = self.steps.get((kind, *options))
        if found is None:
            if len(self.steps) >= _LIMIT:
                self.steps.clear()
            run = _STEPS[kind](self.run, *options)
            found = self.steps[(kind, *options)] = Region(
                f"{kind}({self.name})",
                run,
                self.owner,
                self.place,
                self.kinds,
                (*self.chain, kind),
            )
        return found

    @property
    def may_draw(self) -> bool:
        """Whether random numbers are those of eager mode: the function runs once, and each level of
        vmap says how it draws."""
        if self.kinds == (_KINDS.Grad,):
            return not self.chain
        return self.chain == ("vmap",) * len(self.kinds) and set(self.kinds) == {_KINDS.Vmap}

    def __call__(self, values: tuple[Any, ...], tensors: Sequence[Any]) -> Any:
        """Run the compiled function, which is made at the first call."""
        if self._callable is None:
            unit = self.unit = RegionUnit(self, self.owner, self.place)
            self._callable = _native.Callable(self.run, unit.state_for(self.run.__code__))
            UNITS.add(unit)
        return self._callable(values, *tensors)

    def units(self) -> Iterator[Unit]:
        """The units of this function and of all with more steps."""
        if self.unit is not None:
            yield self.unit
        for region in self.steps.values():
            yield from region.units()


# -- calls -----------------------------------------------------------------------------------------
class Kept:
    """The history of a call of plain tensors, by which its gradients are computed without running
    the function again."""

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any], lasts: bool) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.lasts = lasts  # the gradients have a history, too

    def gradients(self, wanted: Sequence[int], given: Sequence[int], cotangents: Any) -> Any:
        outputs = [self.outputs[at] for at in given]
        pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
        inputs = [self.inputs[at] for at in wanted]
        found: Sequence[Any] = [None] * len(inputs)
        if pairs:
            found = torch.autograd.grad(
                [output for output, _ in pairs],
                inputs,
                [cotangent for _, cotangent in pairs],
                retain_graph=True,
                create_graph=self.lasts and torch.is_grad_enabled(),
                allow_unused=True,
            )
        return tuple(
            [
                torch.zeros_like(x) if one is None else one
                for x, one in zip(inputs, found, strict=True)
            ]
        )


class Call:
    """One call of a region: its arguments that are no tensors, and what its levels share.

    forms    gets the form of the result
    first    the function has not run yet, so it may still run as written
    draws    the function has drawn random numbers when it ran
    keeps    positions of the tensors for which the history is kept in `kept`
    swapped  real modules whose tensors are replaced, with those of `region`'s swaps
    """

    def __init__(self, region: Region, values: tuple[Any, ...], forms: list[Any]) -> None:
        self.region, self.values, self.forms = region, values, forms
        self.first, self.draws = True, False
        self.keeps: tuple[int, ...] = ()
        self.kept: Kept | None = None
        self.kept_by: tuple[Kept, tuple[int, ...], tuple[int, ...]] | None = None
        self.swaps: tuple[transformed.Swap, ...] = ()

    def step(self, kind: str, *options: Any) -> Call:
        made = Call(self.region.step(kind, *options), self.values, self.forms)
        made.first, made.swaps = self.first, self.swaps
        return made

    def below(self) -> Call:
        """The same call for the next level, which has a history of its own."""
        made = Call(self.region, self.values, self.forms)
        made.first, made.draws, made.swaps = self.first, self.draws, self.swaps
        made.kept_by = self.kept_by
        return made

    def derived(self, kind: str, *options: Any) -> Call:
        """This call with a derivative, which torch computes after the function has run."""
        made = self.step(kind, *options)
        made.first, made.forms, made.swaps = False, [], ()
        made.draws = self.draws or self.region.random
        return made

    # -- below all levels
    def run(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The results for plain tensors."""
        if self.kept_by is not None:
            kept, wanted, given = self.kept_by
            return _apart(kept.gradients(wanted, given, tensors[-len(given) :]), tensors)
        if not self.keeps:
            return self._compiled(tensors)
        keeps, history = set(self.keeps), torch.is_grad_enabled()
        with torch.enable_grad():
            inputs = [
                one
                if at not in keeps
                else one.view_as(one)
                if history and one.requires_grad
                else one.detach().requires_grad_()
                for at, one in enumerate(tensors)
            ]
            made = self._compiled(inputs)
        lasts = history and _has_other_leaves(made, inputs)
        self.kept = Kept(inputs, made, lasts)
        return made if lasts else tuple([one.detach() for one in made])

    def _compiled(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        with _without_levels_in(self):
            made, form = self._made(tensors)
        self.forms[:] = [form]
        return _apart(made, tensors)

    def _made(self, tensors: Sequence[Any]) -> Any:
        region = self.region
        if not region.refused:
            try:
                return region(self.values, tensors)
            except BreakError as error:
                region.refused = str(error).splitlines()[0].partition("] ")[2]
        if self.first:
            raise AsWritten(region.refused)
        if self.draws:
            raise RuntimeError("a second derivative of random numbers at one level of a transform")
        return region.run(self.values, *tensors)


@contextlib.contextmanager
def _without_levels_in(call: Call) -> Iterator[None]:
    """Modules hold no tensors of a level, which capture would find: the function replaces them."""
    with contextlib.ExitStack() as stack:
        for index, names, _ in call.swaps:
            given = {name: torch.empty(0) for name in names}
            stack.enter_context(_reparametrize_module(call.values[index], given))
        yield


def _apart(made: Sequence[Any], tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The results as tensors that are not arguments: autograd may pass a gradient on, which torch
    does not allow in a custom function."""
    given = {id(one) for one in tensors}
    return tuple([one.view_as(one) if id(one) in given else one for one in made])


def _has_other_leaves(outputs: Sequence[Any], inputs: Sequence[Any]) -> bool:
    """Whether results depend on tensors that require a gradient beside the private inputs."""
    own = {id(one) for one in inputs}
    waiting = [one.grad_fn for one in outputs if one.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in own:
            return True
        for further, _ in node.next_functions:
            if further is not None and further not in seen:
                seen.add(further)
                waiting.append(further)
    return False


# -- levels ----------------------------------------------------------------------------------------
def apply(call: Call, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a call under the active levels."""
    given = [_functorch.unwrap_if_dead(one) for one in tensors]
    top = _functorch.peek_interpreter_stack()
    if top is None:
        return call.run(given)
    return _RULES[top.key()](top.level(), call, given)


class _Below:
    """The levels without the innermost one; `taped`: grad mode there, None if it is the same."""

    def __init__(self, taped: bool | None = None) -> None:
        self._taped, self._before = taped, torch.is_grad_enabled()

    def __enter__(self) -> None:
        if self._taped is not None:
            torch._C._set_grad_enabled(self._taped)
        self._level = _functorch.pop_dynamic_layer_stack()

    def __exit__(self, *_: Any) -> None:
        _functorch.push_dynamic_layer_stack(self._level)
        torch._C._set_grad_enabled(self._before)


def _vmap(level: int, call: Call, tensors: Sequence[Any]) -> tuple[Any, ...]:
    pairs = [_functorch._unwrap_batched(one, level) for one in tensors]
    dims = tuple([dim for _, dim in pairs])
    if not any(dim is not None for dim in dims):
        with _Below():
            return apply(call, tensors)
    randomness = VmapInterpreter(_functorch.peek_interpreter_stack()).randomness()
    with _Below():
        made = apply(call.step("vmap", dims, randomness), [value for value, _ in pairs])
    return tuple([_functorch._add_batch_dim(one, 0, level) for one in made])


def _grad(level: int, call: Call, tensors: Sequence[Any]) -> tuple[Any, ...]:
    taped = GradInterpreter(_functorch.peek_interpreter_stack()).prev_grad_mode()
    keeps = [at for at, one in enumerate(tensors) if _functorch.maybe_get_level(one) == level]
    keeps = [at for at in keeps if tensors[at].requires_grad]
    if not keeps or not torch.is_grad_enabled():
        given = [_functorch._unwrap_for_grad(one, level) for one in tensors]
        with _Below(taped):
            return apply(call, given)
    if call.first and _functorch.get_dynamic_layer_stack_depth() == 1:
        call.keeps = tuple(keeps)
    lower = call if call.keeps else call.below()
    allowed = _functorch.get_single_level_autograd_function_allowed()
    _functorch.set_single_level_autograd_function_allowed(True)
    try:
        modes = taped, torch._C._is_fwd_grad_enabled()
        return GradLevel.apply(level, modes, call, lower, *tensors)
    finally:
        _functorch.set_single_level_autograd_function_allowed(allowed)


def _jvp(level: int, call: Call, tensors: Sequence[Any]) -> tuple[Any, ...]:
    pairs = [forward_ad.unpack_dual(one) for one in tensors]
    wanted = tuple([at for at, pair in enumerate(pairs) if pair.tangent is not None])
    given = [_functorch._unwrap_for_grad(pair.primal, level) for pair in pairs]
    if not wanted:
        with _Below():
            return apply(call, given)
    given += [_functorch._unwrap_for_grad(pairs[at].tangent, level) for at in wanted]
    with _Below():
        made = apply(call.step("jvp", len(tensors), wanted), given)
    found, after = list[Any](), 0
    while len(found) + after < len(made):
        after += transformed.is_smooth(made[len(found)])
        found.append(_functorch._wrap_for_grad(made[len(found)], level))
    tangents = iter(made[len(found) :])
    for at, one in enumerate(found):
        if transformed.is_smooth(one):
            tangent = _functorch._wrap_for_grad(next(tangents), level)
            found[at] = forward_ad.make_dual(one, tangent)
    return tuple(found)


_RULES = {_KINDS.Vmap: _vmap, _KINDS.Grad: _grad, _KINDS.Jvp: _jvp}


class GradLevel(torch.autograd.function._SingleLevelFunction):
    """The node of a call at one level of grad or vjp."""

    @staticmethod
    def forward(
        level: int, modes: tuple[bool, bool], call: Call, lower: Call, *tensors: Any
    ) -> Any:
        given = [_functorch._unwrap_for_grad(one, level) for one in tensors]
        # the node has switched both modes off for its own level
        with forward_ad._set_fwd_grad_enabled(modes[1]), _Below(modes[0]):
            made = apply(lower, given)
        return tuple([_functorch._wrap_for_grad(one, level) for one in made])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.call, tensors = inputs[2], inputs[4:]
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[one for one in output if not transformed.is_smooth(one)])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        given = tuple([at for at, one in enumerate(gradients) if one is not None])
        wanted = tuple([at for at, one in enumerate(ctx.needs_input_grad[4:]) if one])
        found: list[Any] = [None] * len(ctx.needs_input_grad)
        if not given or not wanted:
            return tuple(found)
        call, tensors = ctx.call, ctx.saved_tensors
        cotangents = [gradients[at] for at in given]
        if call.region.random and call.kept is not None and _is_batched():
            # Run again, the function would draw other numbers.
            made = call.kept.gradients(wanted, given, cotangents)
        else:
            pull = call.derived("vjp", len(tensors), wanted, given)
            if call.kept is not None:
                pull.kept_by = call.kept, wanted, given
            made = apply(pull, [*tensors, *cotangents])
        for at, one in zip(wanted, made, strict=True):
            found[at + 4] = one
        return tuple(found)


def _is_batched() -> bool:
    levels = _functorch.get_interpreter_stack() or ()
    return any(level.key() == _KINDS.Vmap for level in levels)


# -- a miss ----------------------------------------------------------------------------------------
def entry_for(unit: Unit, state: Any, compiler: Any, function: Any) -> Any:
    """An entry without guards that answers one call under transforms; None: run it as written."""
    kinds = tuple([level.key() for level in _functorch.get_interpreter_stack()])
    if not _RULES.keys() >= set(kinds) or _refused_outside(_KINDS.Jvp in kinds):
        return None

    def answer(*found: Any) -> Any:
        return _answer(unit, state, function, found, kinds)

    return _native.Entry("code", compiler.compile_rows([], [], state.code), answer, None, rows=[])


def _refused_outside(with_forward_level: bool) -> bool:
    """Whether anything but the levels is active that is not modelled. The level of forward AD that
    a jvp has opened holds no tensor below it."""
    levels = []
    try:
        while _functorch.peek_interpreter_stack() is not None:
            levels.append(_functorch.pop_dynamic_layer_stack())
        now = snapshot()
    finally:
        while levels:
            _functorch.push_dynamic_layer_stack(levels.pop())
    if with_forward_level:
        now = dataclasses.replace(now, forward_level=-1)
    return refused_in(now) is not None


def _answer(
    unit: Unit, state: Any, function: Any, found: Sequence[Any], kinds: tuple[Any, ...]
) -> Any:
    args, kwargs = _bound(function.__code__, found)
    tensors: list[Any] = []
    values: list[Any] = []
    form = transformed.taken_apart((args, kwargs), tensors, values)
    swaps = _swaps(function, values, tensors)
    forms: list[Any] = []
    try:
        call = Call(_region(unit, function, form, swaps, kinds), tuple(values), forms)
        call.swaps = swaps
        made = apply(call, tensors)
        form_of_result, others = forms[0]
        return transformed.joined(form_of_result, made, others)
    except AsWritten as error:
        reason = str(error)
    unit._tell_plain(state, "PL209", f"active: a transform of torch.func; {reason}")
    return function(*args, **kwargs)


def _region(
    unit: Unit,
    function: Any,
    form: Any,
    swaps: tuple[transformed.Swap, ...],
    kinds: tuple[Any, ...],
) -> Region:
    cells = tuple([id(cell) for cell in function.__closure__ or ()])
    key = (function.__code__, id(function.__globals__), cells, form, swaps, kinds)
    try:
        found = unit.transformed.get(key)
    except TypeError:
        raise AsWritten("an argument whose form is not hashable") from None
    if found is None:
        if len(unit.transformed) >= _LIMIT:
            unit.transformed.clear()
        run = transformed.called(function, form, swaps)
        place = unit.place or place_of(function.__code__)
        found = unit.transformed[key] = Region(unit.name, run, unit, place, kinds)
    return found


def _bound(code: types.CodeType, found: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for a call, from the values of a function's parameters."""
    n, names = code.co_argcount, code.co_varnames
    last = n + code.co_kwonlyargcount
    args, kwargs = tuple(found[:n]), dict(zip(names[n:last], found[n:last], strict=True))
    rest = list(found[last:])
    if code.co_flags & inspect.CO_VARARGS:
        args += tuple(rest.pop(0))
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs.update(rest.pop(0))
    return args, kwargs


def _swaps(function: Any, values: list[Any], tensors: list[Any]) -> tuple[transformed.Swap, ...]:
    """The modules among the arguments and in the closure whose tensors a level has wrapped, as by
    `torch.func.functional_call`. The modules and tensors are appended to the lists."""
    found = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            if isinstance(cell.cell_contents, torch.nn.Module):
                values.append(cell.cell_contents)
    seen: set[int] = set()
    for index, module in enumerate(values):
        if not isinstance(module, torch.nn.Module) or id(module.__dict__) in seen:
            continue
        seen.add(id(module.__dict__))
        named = itertools.chain(
            module.named_parameters(remove_duplicate=False),
            module.named_buffers(remove_duplicate=False),
        )
        wrapped = [(n, one) for n, one in named if _functorch.is_functorch_wrapped_tensor(one)]
        if wrapped:
            found.append((index, tuple([name for name, _ in wrapped]), len(tensors)))
            tensors += [one for _, one in wrapped]
    return tuple(found)
