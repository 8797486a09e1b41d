"""A jitted function under transforms of torch.func, as functions of tensors that capture walks.

In: a function with its arguments in parts (tensors, other values, and the form that joins them).
Out: functions `(values, *tensors) -> (tensors, form of the result)`: the call itself, and what each
level of a transform needs of it (a batched call, gradients, tangents). Each takes another one, so a
stack of levels is a chain. `graftjit.dispatch.transforms` compiles them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.func
from torch.nn.utils.stateless import _reparametrize_module

# (values, *tensors) -> (tensors of the result, form of the result)
Run = Callable[..., tuple[tuple[torch.Tensor, ...], Any]]
# (position of a module among the values, names of its tensors that are replaced, position of the
# first replacement among the tensors)
Swap = tuple[int, tuple[str, ...], int]


# -- forms -----------------------------------------------------------------------------------------
def taken_apart(value: Any, tensors: list[torch.Tensor], values: list[Any]) -> Any:
    """The form of a value; its tensors and its other parts are appended to the lists."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return "tensor", len(tensors) - 1
    kind = type(value)
    if kind is tuple or kind is list:
        return kind, tuple([taken_apart(item, tensors, values) for item in value])
    if kind is dict or kind is OrderedDict:
        parts = [(key, taken_apart(item, tensors, values)) for key, item in value.items()]
        return kind, tuple(parts)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return kind, tuple([taken_apart(item, tensors, values) for item in value])
    values.append(value)
    return "value", len(values) - 1


def joined(form: Any, tensors: Sequence[torch.Tensor], values: Sequence[Any]) -> Any:
    """The value of a form."""
    kind, parts = form
    if kind == "tensor":
        return tensors[parts]
    if kind == "value":
        return values[parts]
    if kind is dict or kind is OrderedDict:
        return kind([(key, joined(part, tensors, values)) for key, part in parts])
    items = [joined(part, tensors, values) for part in parts]
    return kind(items) if kind is tuple or kind is list else kind._make(items)


# -- the chain -------------------------------------------------------------------------------------
def called(function: Any, form: Any, swaps: tuple[Swap, ...]) -> Run:
    """The call of the function; `form`: that of (args, kwargs)."""

    def within(at: int, values: Any, tensors: Any) -> Any:
        if at == len(swaps):
            args, kwargs = joined(form, tensors, values)
            return function(*args, **kwargs)
        index, names, first = swaps[at]
        given = dict(zip(names, tensors[first : first + len(names)], strict=True))
        with _reparametrize_module(values[index], given):
            return within(at + 1, values, tensors)

    def run(values: Any, *tensors: Any) -> Any:
        made: list[torch.Tensor] = []
        others: list[Any] = []
        form_of_result = taken_apart(within(0, values, tensors), made, others)
        return tuple(made), (form_of_result, tuple(others))

    return run


def batched(inner: Run, dims: tuple[int | None, ...], randomness: str) -> Run:
    """`inner` over a batch dimension of its tensors; the results have it first."""

    def run(values: Any, *tensors: Any) -> Any:
        forms: list[Any] = []

        def body(*parts: Any) -> Any:
            made, form = inner(values, *parts)
            forms.append(form)
            return made

        made = torch.func.vmap(body, in_dims=dims, out_dims=0, randomness=randomness)(*tensors)
        return made, forms[0]

    return run


def pulled_back(inner: Run, n: int, wanted: tuple[int, ...], given: tuple[int, ...]) -> Run:
    """Gradients of the wanted ones of n tensors; after these come the gradients of the given
    results."""

    def run(values: Any, *tensors: Any) -> Any:
        def body(*parts: Any) -> Any:
            inputs = list(tensors[:n])
            for at, part in zip(wanted, parts, strict=True):
                inputs[at] = part
            made = inner(values, *inputs)[0]
            return tuple([made[at] for at in given])

        _, pull = torch.func.vjp(body, *[tensors[at] for at in wanted])
        return pull(tuple(tensors[n:])), None

    return run


def pushed_forward(inner: Run, n: int, wanted: tuple[int, ...]) -> Run:
    """The results, and after them the tangents of those that can have one; after n tensors come the
    tangents of the wanted ones."""

    def run(values: Any, *tensors: Any) -> Any:
        forms: list[Any] = []

        def body(*parts: Any) -> Any:
            inputs = list(tensors[:n])
            for at, part in zip(wanted, parts, strict=True):
                inputs[at] = part
            made, form = inner(values, *inputs)
            forms.append(form)
            return tuple([one for one in made if is_smooth(one)]), made

        primals = tuple([tensors[at] for at in wanted])
        found = torch.func.jvp(body, primals, tuple(tensors[n:]), has_aux=True)
        return (*found[2], *found[1]), forms[0]

    return run


def is_smooth(tensor: torch.Tensor) -> bool:
    """Whether a tensor can have a derivative."""
    return tensor.is_floating_point() or tensor.is_complex()
