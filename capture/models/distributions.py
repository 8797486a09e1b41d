"""What `torch.distributions` asks of its own classes: lazy attributes, and rules of divergences.

In: calls of `kl_divergence`, and reads of lazy properties from a class. Out: Values; the rule of
two classes is a read of torch's table, under a guard.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch.distributions import kl, utils

from ...runtime.guards.sources import Source
from ..breaks import Break
from ..data_model import attributes
from ..exact_type import is_kind
from ..values.registry import Args, Kwargs, models
from ..values.value import Obj, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_TABLE: dict[Any, Any] = kl._KL_MEMOIZE


class _Rule:
    """The rule of two classes, as torch finds it: a callable for a "context" source."""

    __slots__ = ("__name__", "_classes")

    def __init__(self, *classes: type) -> None:
        self._classes = [weakref.ref(cls) for cls in classes]
        self.__name__ = f"divergence_of_{'_and_'.join(cls.__name__ for cls in classes)}"

    def __call__(self) -> Any:
        classes = tuple([one() for one in self._classes])
        if None in classes:
            return None
        found = _TABLE.get(classes)
        if found is None:
            # As torch does at the first call.
            found = _TABLE[classes] = kl._dispatch_kl(*classes)
        return found


@models(kl.kl_divergence)
def _divergence(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    classes = [attributes.real_class(one) for one in args]
    known = all(
        isinstance(cls, type) and cls.__module__.split(".")[0] == "torch" for cls in classes
    )
    if len(args) != 2 or kwargs or not known:
        raise Break("GB122", "kl_divergence() of distributions of the program's own")
    key = (_Rule, *classes)
    if key not in m.heap.asked:
        m.heap.asked[key] = _Rule(*classes)  # type: ignore[arg-type]
    rule = m.heap.asked[key]
    if rule() is NotImplemented:
        raise Break("GB108", "kl_divergence() of distributions without a rule")
    return m.call(m.wrap(rule(), Source("context", None, rule)), args, {})


@models(utils._lazy_property_and_property)
def _lazy(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """What a lazy property gives that is read from a class."""
    if len(args) != 1 or kwargs or not isinstance(args[0], Obj):
        raise Break("GB126", "a lazy property")
    wrapped = args[0].value
    if not is_kind(wrapped, type(kl.kl_divergence)) or not wrapped.__module__.startswith("torch."):
        raise Break("GB126", "a lazy property of the program's own")
    return Obj(utils._lazy_property_and_property(wrapped))
