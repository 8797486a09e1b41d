"""The instructions of generators: yield, and `yield from` over what the frame walks."""

from __future__ import annotations

from ..breaks import Break, Thrown
from ..bytecode.decoder import Instr, stack_effect
from ..data_model.attributes import call_special
from ..data_model.iteration import iterate, take
from ..operations.generators import is_guarded
from ..values.frames import Frame
from ..values.value import Const, Iterator, Value, is_none
from .machine import Machine, handles


@handles("RETURN_GENERATOR")
def _return_generator(m: Machine, f: Frame, i: Instr) -> None:
    f.push(Const(None))  # the first `send`, which the next instruction drops


@handles("YIELD_VALUE")
def _yield_value(m: Machine, f: Frame, i: Instr) -> None:
    if is_guarded(f.decoded, i):
        m.open_generators.add(f)  # dropped half way, it runs its handlers: see `frame`
    f.yielded = f.pop()


# -- yield from -----------------------------------------------------------------------------------
@handles("GET_YIELD_FROM_ITER")
def _get_yield_from_iter(m: Machine, f: Frame, i: Instr) -> None:
    f.push(iterate(m, f.pop()))


@handles("SEND")
def _send(m: Machine, f: Frame, i: Instr) -> None:
    sent = f.pop()
    source = f.peek(1)
    if not isinstance(source, Iterator) or not is_none(sent):
        raise Break("GB107", "a value sent through yield from")
    item = _next_of_object(m, source) if source.kind == "object" else take(m, source)
    if item is not None:
        f.push(item)
        return
    result = source.parts[0].result if source.kind == "generator" else Const(None)
    popped, pushed = stack_effect(i, jump=True)
    if (
        pushed < popped
    ):  # the receiver goes with the exhausted step; later versions have END_SEND for it
        f.pop()
    f.push(result)
    f.pc = i.target  # type: ignore[assignment]


def _next_of_object(m: Machine, source: Iterator) -> Value | None:
    """The next item of an iterator of a user's class; None at an end without a value to return."""
    try:
        item = call_special(m, source.parts[0], "__next__", [])
    except Thrown as thrown:
        if not issubclass(thrown.cls, StopIteration):
            raise
        if thrown.known != ():
            raise Break("GB107", "an iterator that returns a value at its end") from None
        return None
    if item is None:
        raise Break("GB107", "an iterator without __next__ in yield from")
    return item


@handles("END_SEND")
def _end_send(m: Machine, f: Frame, i: Instr) -> None:
    result = f.pop()
    f.pop()
    f.push(result)
