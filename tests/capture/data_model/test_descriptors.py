"""Members of C's, descriptors within descriptors, and operators that Python asks of one operand after the other."""

from __future__ import annotations

import collections
import contextvars
import types
from typing import Any

import torch

from ..harness import agrees


@agrees(level="O1")
def test_a_member_of_c_that_is_read_only_refuses_at_its_place() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        variable = contextvars.ContextVar("before")
        try:
            variable.name = "after"  # type: ignore[misc]
            said = "stored"
        except AttributeError:
            said = "refused"
        return y * 2, said, variable.name

    return fn, (torch.ones(2),)


class Left:
    __slots__ = ("kept",)


class Borrows:
    kept = Left.kept  # type: ignore[attr-defined]


@agrees(level="O1")
def test_a_slot_of_another_class() -> tuple:
    def fn(x: Any, other: Any) -> Any:
        y = x + 1
        said = []
        for work in (lambda: other.kept, lambda: setattr(other, "kept", 1)):
            try:
                said.append(work())
            except TypeError:
                said.append("refused")
        return y * 2, said

    return fn, (torch.ones(2), Borrows())


class Doubled:
    @classmethod
    @classmethod
    def outer(cls) -> Any:
        return "called"

    @classmethod
    @property
    def named(cls) -> Any:
        return "a property"


@agrees(level="O1")
def test_a_class_method_around_a_descriptor() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        try:
            said = Doubled().outer()
        except TypeError:
            said = "refused"
        return y * 2, said, type(Doubled().named).__name__

    return fn, (torch.ones(2),)


class Asked:
    log: list = []


class AsksLeft(Asked):
    def __eq__(self, other: object) -> Any:
        Asked.log.append("left ==")
        return NotImplemented


class AsksRight(Asked):
    def __eq__(self, other: object) -> Any:
        Asked.log.append("right ==")
        return NotImplemented

    def __ne__(self, other: object) -> Any:
        Asked.log.append("right !=")
        return NotImplemented


@agrees(level="O1")
def test_unequal_asks_each_side_for_its_own() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        del Asked.log[:]
        same = AsksLeft()
        found = AsksLeft() != AsksRight(), AsksRight() != AsksLeft(), same != same
        return y * 2, found, list(Asked.log)

    return fn, (torch.ones(2),)


class Ends:
    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        raise StopIteration(42)


@agrees(level="O1")
def test_what_an_iterator_of_the_programs_returns_at_its_end() -> tuple:
    def made() -> Any:
        got = yield from Ends()
        yield got

    def fn(x: Any) -> Any:
        y = x + 1
        return y * 2, list(made())

    return fn, (torch.ones(2),)


class Index:
    def __index__(self) -> int:
        return 3


@agrees(level="O1")
def test_a_list_times_an_object() -> tuple:
    def fn(x: Any, times: Any) -> Any:
        y = x + 1
        kept = [1]
        kept *= times
        return y * 2, kept

    return fn, (torch.ones(2), Index())


@agrees(level="O1")
def test_the_method_of_dict_on_an_ordered_dict() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        kept = collections.OrderedDict(a=1, b=2)
        dict.__delitem__(kept, "a")
        return y * 2, len(kept), "a" in kept

    return fn, (torch.ones(2),)


@agrees(level="O1")
def test_a_bound_method_of_c_is_what_python_makes_of_it() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        return y * 2, type(object().__init__) is types.MethodWrapperType

    return fn, (torch.ones(2),)


@agrees(level="O1")
def test_a_function_keeps_the_builtins_that_it_was_made_with() -> tuple:
    def fn(x: Any, asked: Any) -> Any:
        y = x + 1
        return y * 2, asked([1, 2])

    names: dict[str, Any] = {}
    exec("def asked(of): return len(of)", names)
    names["__builtins__"] = {"len": lambda of: 7}
    return fn, (torch.ones(2), names["asked"])


@agrees(level="O1")
def test_a_type_of_c_that_nobody_has_used() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        return y * 2, len(list(fn.__code__.co_positions())) > 0

    return fn, (torch.ones(2),)


class Refuses:
    __iadd__ = None
    __sub__ = None

    def __add__(self, other: Any) -> Any:
        return self


class Subtracts:
    def __rsub__(self, other: Any) -> Any:
        return "reflected"


@agrees(level="O1")
def test_an_operator_that_a_class_says_none_for() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        kept, said = Refuses(), []
        try:
            kept += 1
        except TypeError:
            said.append("+=")
        try:
            said.append(kept - Subtracts())
        except TypeError:
            said.append("-")
        return y * 2, said

    return fn, (torch.ones(2),)


@agrees()
def test_an_empty_slot_names_its_class_as_python_does():
    def slotted(module):
        class Slotted:
            __module__ = module
            __slots__ = ("kept",)

        return Slotted()

    def f(x, empty):
        try:
            return empty.kept
        except AttributeError as error:
            return x + 1, str(error), error.name

    x, *others = (torch.ones(2), slotted("__main__")), slotted("builtins"), slotted("elsewhere")
    return f, x, [lambda one=one: (torch.ones(2), one) for one in others]


@agrees()
def test_special_methods_that_a_descriptor_gives():
    log = []

    class Given:
        def __init__(self, name, result):
            self.name, self.result = name, result

        def __get__(self, instance, owner):
            log.append(self.name)
            return lambda *_: self.result

    class Kind:
        __eq__ = Given("eq", True)
        __hash__ = Given("hash", 5)
        __bool__ = Given("bool", False)
        __len__ = Given("len", 3)
        __contains__ = Given("in", True)

    kind = Kind()

    def f(x, k):
        log.clear()
        found = (
            k == k,
            k != k,
            k == 3,
            [k] == [k],
            bool(k),
            len(k),
            7 in k,
            k in [1, k],
            {k: 1}.get(k),
        )
        return x + 1, found, log.copy()

    return f, (torch.ones(2), kind)


class Count(int):
    """An int whose reflected methods only an int's operators prefer to their own."""

    def __radd__(self, other: Any) -> Any:
        return "reflected +"

    def __gt__(self, other: Any) -> Any:
        return "reflected <"

    def __eq__(self, other: Any) -> Any:
        return "reflected =="

    __hash__ = int.__hash__


class Declines(list):
    def __radd__(self, other: Any) -> Any:
        return NotImplemented

    def __eq__(self, other: Any) -> Any:
        return NotImplemented


class DeclinesAsInt(int):
    __radd__ = __eq__ = __gt__ = lambda self, other: NotImplemented  # type: ignore[assignment]
    __hash__ = int.__hash__


@agrees(level="O1")
def test_a_number_takes_an_object_derived_of_a_lesser_number() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        two = Count(2)
        sums = 1.0 + two, 1j + two, 1 + two, True + two
        asked = 1.0 < two, 1 < two, 2.0 == two, 2j == two, 2 == two, two == 2.0
        return y * 2, sums, asked

    return fn, (torch.ones(2),)


@agrees(level="O1")
def test_a_builtin_answers_where_the_derived_object_declines() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        two = DeclinesAsInt(2)
        numbers = 1 + two, 1 < two, 2 == two, two == 2, 2 != two
        return y * 2, numbers, [1] == Declines([1]), Declines([1]) != [1]

    return fn, (torch.ones(2),)


class Reflects(list):
    def __radd__(self, other: Any) -> Any:
        return "reflected +"

    def __rmul__(self, other: Any) -> Any:
        return "reflected *"


@agrees(level="O1")
def test_a_list_that_grows_by_an_object_asks_its_reflected_method_first() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        found: list[Any] = []
        for other in (Reflects([2]), Declines([2])):
            kept: Any = [1]
            kept += other
            found.append(kept)
        kept = [1]
        kept *= Reflects()
        return y * 2, found, kept

    return fn, (torch.ones(2),)


class Falls:
    __slots__ = ("kept",)

    def __getattr__(self, name: str) -> Any:
        return 5


@agrees(level="O1")
def test_an_empty_slot_is_deleted() -> tuple:
    def fn(x: Any) -> Any:
        y = x + 1
        said = []
        for kind in (Left, Falls):
            try:
                del kind().kept
                said.append("deleted")
            except AttributeError as error:
                said.append(str(error))
        return y * 2, said

    return fn, (torch.ones(2),)


@agrees(level="O1")
def test_a_name_that_the_frame_deletes_is_asked_of_the_modules_getattr() -> tuple:
    def fn(x: Any, module: Any) -> Any:
        y = x + 1
        del module.held
        asked = hasattr(module, "held"), getattr(module, "held", 9)
        del module.__getattr__
        asked += hasattr(module, "held"), hasattr(module, "other")
        module.__getattr__ = lambda name: 7
        asked += hasattr(module, "held"), hasattr(module, "other")
        module.held = 2
        return y * 2, asked

    module: Any = types.ModuleType("has_names")
    module.__getattr__ = lambda name: 5
    module.held = 1
    return fn, (torch.ones(2), module)
