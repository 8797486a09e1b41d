"""Tensors drawn by a `torch.Generator` of the program's: `torch.randn(2, generator=g)`.

In: a call of torch with a generator. Out: an input of the graph, and an effect: replacement code
draws the tensor before the frame's program, in the program's order, as it calls Python's own
generators (`called_numbers`). `x.normal_(generator=g)` is a write of a tensor drawn so. Where the
drawn numbers depend on a tensor's data (`multinomial`, `bernoulli`), or sizes vary, the call is a
break. A generator that the frame makes is made before the program, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...runtime.guards.sources import Source
from .. import helpers
from ..breaks import Break
from ..torch_models import calls
from ..values import symbolic_numbers
from ..values.containers import NotConstant, as_constant, as_constants
from ..values.effects import Called
from ..values.registry import Args, Kwargs, drawn_tensor, models
from ..values.value import Const, Obj, Tensor, Value
from .called_numbers import RANDOM, happens, refuse_inside

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB124"
_FACTORIES = (torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal)
_METHODS = (
    *("normal_", "uniform_", "random_", "exponential_", "log_normal_", "geometric_", "cauchy_"),
    "bernoulli_",
)


@models(drawn_tensor)
def _drawn(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """args[0](*args[1:], **kwargs), with a generator among the keywords"""
    fn, rest, named = args[0].value, args[1:], dict(kwargs)  # type: ignore[attr-defined]
    generator = named.pop("generator")
    if not isinstance(generator, Obj) or type(generator.value) is not torch.Generator:
        raise Break(_CODE, "a torch call with an argument that is not a constant")
    _refuse_own(m, generator)
    if any(fn is one for one in _FACTORIES):
        return _call(m, fn, _plain(rest), _named(named), generator)
    name = getattr(fn, "__name__", "")
    if name not in _METHODS or getattr(torch.Tensor, name) is not fn:
        raise Break(_CODE, "a generator object in a torch call")
    target = rest[0]
    assert isinstance(target, Tensor)
    ghost = target.ghost
    form = tuple(ghost.shape), ghost.stride(), ghost.dtype, ghost.device
    if not all(type(size) is int for size in (*form[0], *form[1])):
        raise Break(_CODE, "a tensor of varying size is drawn by a generator object")
    given = [Const(name), Const(form), *_plain(rest[1:])]
    drawn = _call(m, helpers.drawn_like, given, _named(named), generator)
    return calls.call_tensor_method(m, target, "copy_", [drawn], {})


def _plain(values: Args) -> Args:
    """The arguments, which are constants; a number that varies is a break."""
    for value in values:
        _check(value)
    return values


def _named(values: Kwargs) -> Kwargs:
    _plain(list(values.values()))
    return values


def _check(value: Value) -> None:
    items = getattr(value, "items", None) if not isinstance(value, Const) else None
    for one in items if isinstance(items, list) else [value]:
        varies = symbolic_numbers.is_number(one) and not isinstance(one, Const)
        if isinstance(one, Tensor) or varies:
            raise Break(_CODE, "a generator object in a torch call")


def _refuse_own(m: Machine, generator: Obj) -> None:
    """Guard that this is not the generator of the graph's own random numbers."""
    real = generator.value
    own: list[Any] = [torch.default_generator]
    if real.device.type != "cpu":
        own += getattr(getattr(torch, real.device.type, None), "default_generators", ())
    if any(real is one for one in own):
        raise Break(_CODE, "the default generator as an argument")
    if generator.source is not None:
        places = [Source("const", None, one) for one in own]
        m.guard("distinct", None, (generator.source, *places))


def _call(m: Machine, step: Any, args: Args, kwargs: Kwargs, generator: Obj) -> Value:
    """The Value of step(*args, **kwargs, generator=generator), and its effect."""
    refuse_inside(m, RANDOM)
    try:
        plain, named = as_constants(m, args, kwargs)
    except NotConstant:
        raise Break(_CODE, "a generator object in a torch call") from None
    scratch = torch.Generator(generator.value.device)
    try:
        real = step(*plain, **named, generator=scratch)
    except Exception as error:
        raise Break(_CODE, f"{step.__name__}: {error}") from None
    if type(real) is not torch.Tensor or real.requires_grad or real.layout is not torch.strided:
        raise Break(_CODE, "a generator object in a torch call")
    made = Tensor(m.root_tracer.input(real), torch.Tensor, real)
    m.inputs.append(made)
    m.heap.known[id(made.ghost)] = made
    m.heap.keep += (made.ghost, real)
    state = None if generator.source is None else generator
    items = tuple(args)
    pairs = (*kwargs.items(), ("generator", generator))
    happens(m, RANDOM, Called(step, items, pairs, (), made, True, state))
    return made


# -- generators made in the frame ------------------------------------------------------------------
@models(torch.Generator)
def _make(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    refuse_inside(m, RANDOM)
    plain, named = as_constants(m, args, kwargs)
    try:
        real = torch.Generator(*plain, **named)
    except Exception as error:
        raise Break("GB126", f"Generator: {error}") from None
    made = Obj(real)
    m.heap.known[id(real)] = made
    m.heap.keep.append(real)
    pairs = tuple(kwargs.items())
    happens(m, RANDOM, Called(torch.Generator, tuple(args), pairs, (), made, True))
    return made


@models(torch.Generator.manual_seed)
def _seed(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    generator, *rest = args
    if not isinstance(generator, Obj) or len(rest) != 1 or kwargs:
        raise Break("GB119", "manual_seed() with these arguments")
    _refuse_own(m, generator)
    refuse_inside(m, RANDOM)
    if type(as_constant(m, rest[0])) is not int:
        raise Break("GB119", "manual_seed() of this value")
    state = None if generator.source is None else generator
    step = torch.Generator.manual_seed
    happens(m, RANDOM, Called(step, tuple(args), early=True, state=state))
    return generator
