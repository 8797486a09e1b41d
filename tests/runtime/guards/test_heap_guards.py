"""What a guard program remembers of the heap: never stale, whatever is changed between two calls, and by whom.

Programs are made from facts of a small world of objects; the world is changed at random, by every means there is;
after each change the native program, which may answer from memory, must say what the mirror says.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import gc
import random
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from graftjit.runtime import _native
from graftjit.runtime.guards.compiler import compile_rows
from graftjit.runtime.guards.mirror import FrameView, Reader, holds, mirror, tensor_spec
from graftjit.runtime.guards.rows import Row
from graftjit.runtime.guards.sources import Source
from graftjit.runtime.safe_access import MISSING


def frame_of(value: Any) -> Any:
    def frame(x: Any = None, y: Any = None) -> Any:
        return value

    return frame


class Inline:
    """Its attributes stay in inline values until someone asks for `__dict__`."""

    level = "class"

    def __init__(self) -> None:
        self.a = 1.5
        self.b = "b"


class Other(Inline):
    level = "other"


class Plain(Inline):
    def __init__(self) -> None:
        super().__init__()
        self.__dict__.update(c=[1, 2], d={"a": 1})


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a, self.b = 1, [1]


class Loose(dict):
    pass


class Row_(list):
    pass


def first(value: Any, extra: int = 1) -> Any:
    return value


def second(value: Any, extra: int = 2, *, more: int = 3) -> Any:
    return extra


def store_a(thing: Any, value: Any) -> None:  # specialised by the interpreter after some calls
    thing.a = value


class World:
    """Everything that can be changed, and the frame that looks at it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.scope: dict[str, Any] = {"__builtins__": builtins, "g": 1.5, "thing": Inline()}
        self.x = Plain()
        self.y: Any = Inline()
        self.renew()
        self.frame = frame_of(self.cell_value())
        self.closure = self.frame.__closure__

    def cell_value(self) -> Any:
        return Inline()

    def renew(self) -> None:
        """Attributes of x hold one object of each kind."""
        made: dict[str, Callable[[], Any]] = {
            "inline": Inline, "plain": Plain, "slotted": Slotted, "list": lambda: [1.5, "b", [1], Inline()],
            "tuple": lambda: (1.5, Inline(), [2.5]), "dict": lambda: {"a": 1.5, "b": Inline()},
            "order": lambda: collections.OrderedDict(a=1, b=2), "set": lambda: {1, "a"},
            "deque": lambda: collections.deque([1, 2]), "loose": lambda: Loose(a=1, b=2.5), "row": lambda: Row_([1, 2.5]),
            "function": lambda: types.FunctionType(first.__code__, {}, "f", (1,)),
            "module": lambda: torch.nn.Linear(2, 3), "tensor": lambda: torch.nn.Parameter(torch.zeros(2, 3)),
            "cls": lambda: type("Made", (Inline,), {"a": 1}), "name": lambda: types.ModuleType("name"),
            "method": lambda: self.x.inline_method, "ref": lambda: weakref.ref(Inline if type(self.y) is int else self.y),
        }  # fmt: skip
        self.x.inline_method = types.MethodType(first, self.y)
        for name, make in made.items():
            setattr(self.x, name, make())
        self.x.name.a = 1.5

    # -- facts -----------------------------------------------------------------------------------------
    def view(self) -> FrameView:
        return FrameView(
            self.frame.__code__, (self.x, self.y), self.scope, vars(builtins), self.closure
        )

    def source(self) -> Source:
        """A random path that can be walked now."""
        rng, read = self.rng, Reader(self.view())
        roots = [Source("local", None, "x")] * 6 + [
            Source("local", None, "y"), Source("global", None, "g"), Source("global", None, "thing"),
            Source("contents", Source("cell", None, "value")), Source("builtin", None, "len"),
        ]  # fmt: skip
        source = rng.choice(roots)
        for _ in range(rng.randrange(5)):
            step = self.step(read(source))
            if step is None:
                break
            longer = Source(step[0], source, step[1])
            if read(longer) is MISSING:
                break
            source = longer
        return source

    def step(self, value: Any) -> tuple[str, Any] | None:
        rng, steps = self.rng, [("type", None), ("class_attr", "level"), ("class_attr", "__init__")]
        if isinstance(value, dict):
            steps += [("item", key) for key in value if type(key) is str]
            steps += [("key", i) for i in range(len(value))]
        if isinstance(value, (list, tuple)):
            steps += [("item", i) for i in range(len(value))] * 2
        if isinstance(value, type):
            steps += [
                ("mro_attr", "level"),
                ("attr", "a"),
                ("attr", "level"),
                ("member", "__name__"),
            ]
        elif hasattr(value, "__dict__"):
            steps += [("attr", key) for key in vars(value)] * 2
            if self.rng.random() < 0.2:
                steps.append(("dict", None))
        if type(value) is Slotted:
            steps += [("slot", "a"), ("slot", "b")]
        if type(value) is types.FunctionType:
            steps += [
                ("member", n) for n in ("__code__", "__defaults__", "__kwdefaults__", "__globals__")
            ]
        if type(value) is types.MethodType:
            steps += [("member", "__self__"), ("member", "__func__")]
        if type(value) is weakref.ref:
            steps += [("referent", None)]
        return rng.choice(steps)

    def facts(self) -> list[Row]:
        """Rows that hold now, in an order in which paths are safe to walk."""
        rng, read, rows = self.rng, Reader(self.view()), []
        for _ in range(rng.randrange(1, 9)):
            source = self.source()
            path, at = [], source
            while at is not None:
                path.append(at)
                at = at.base
            rows += [
                Row("type", one, type(read(one))) for one in reversed(path) if rng.random() < 0.7
            ]
            rows += self.about(source, read(source))
        rows.append(Row("no_global", None, "absent"))
        return [row for row in rows if holds(row, read)]

    def about(self, source: Source, value: Any) -> list[Row]:
        rng, rows = self.rng, []
        if isinstance(value, (int, float, str, type(None))):
            rows.append(Row("equals", source, value))
        if isinstance(value, torch.Tensor):
            rows.append(Row("tensor", source, tensor_spec(value)))
        if isinstance(value, (dict, list, tuple, set, collections.deque)):
            rows.append(Row("len", source, len(value)))
        if isinstance(value, (dict, set)):
            rows.append(Row("keys", source, tuple(value)))
        if isinstance(value, dict):
            rows.append(Row("no_item", source, rng.choice(("a", "absent"))))
        if isinstance(value, set):
            rows.append(Row("set", source, frozenset(value)))
        if isinstance(value, type):
            rows += [Row("mro", source, value.__mro__), Row("no_mro_attr", source, "absent")]
        rows.append(Row("no_attr", source, rng.choice(("a", "b", "absent", "late"))))
        rows.append(Row("no_class_attr", source, rng.choice(("absent", "late"))))
        if isinstance(value, (type, types.FunctionType, types.CodeType, types.ModuleType)):
            rows.append(Row("is", source, value))
        rows.append(Row("same", source, rng.choice((source, self.source()))))
        rows.append(Row("distinct", None, (source, self.source())))
        rows.append(Row("own_dict", source, (self.source(),)))
        return rng.sample(rows, rng.randrange(1, len(rows) + 1))

    # -- changes ---------------------------------------------------------------------------------------
    def value(self) -> Any:
        rng = self.rng
        return rng.choice([
            lambda: 1.5, lambda: float("1.5"), lambda: -0.0, lambda: 0.0, lambda: float("2.5"), lambda: 1, lambda: True,
            lambda: int("1000"), lambda: "b", lambda: "".join(["b", "c"]), lambda: None, lambda: [1], lambda: (1.5, [2.5]),
            Inline, Plain, Other, Slotted, lambda: {"a": float("1.5")}, lambda: torch.nn.Parameter(torch.zeros(2, 3)),
            lambda: self.x, lambda: self.y,
        ])()  # fmt: skip

    def objects(self) -> list[Any]:
        found = [
            self.x,
            self.y,
            self.scope["thing"] if "thing" in self.scope else self.x,
            *vars(self.x).values(),
        ]
        for cell in self.closure:
            if cell != types.CellType():
                found.append(cell.cell_contents)
        for one in list(found):
            if isinstance(one, (list, tuple)):
                found += one
            elif isinstance(one, dict):
                found += one.values()
            elif type(one) in (Inline, Plain, Other):
                found += vars(one).values() if self.rng.random() < 0.1 else ()
        return found

    def change(self) -> None:
        change = self.rng.choice([
            self.change_scope, self.change_attribute, self.change_attribute, self.change_attribute, self.change_kind,
            self.change_container, self.change_container, self.change_container, self.change_class,
            self.change_function, self.change_cell, self.change_tensor, self.change_tensor, self.change_roots,
        ])  # fmt: skip
        with contextlib.suppress(RuntimeError, TypeError, AttributeError, IndexError, KeyError):
            change()  # what Python or torch refuses is no change
        self.complete()

    def change_roots(self) -> None:
        if self.rng.random() < 0.3:
            self.y = self.rng.choice([self.y, Inline(), self.x.inline, 3])
        elif self.rng.random() < 0.2:
            self.renew()

    def change_scope(self) -> None:
        name = self.rng.choice(("g", "thing", "absent", "unrelated", "len"))
        if self.rng.random() < 0.3:
            self.scope.pop(name, None)
        else:
            self.scope[name] = self.value()

    def change_attribute(self) -> None:
        rng = self.rng
        thing = rng.choice(
            [o for o in self.objects() if hasattr(o, "__dict__") and not isinstance(o, type)]
        )
        names = ["a", "b", "late", *(vars(thing) if type(thing) in (Plain, Other) else ())]
        name, value = rng.choice(names), self.value()
        if type(thing) is torch.nn.Linear:
            name = rng.choice(("in_features", "training", "bias"))
            value = rng.choice((2, True, False)) if name != "bias" else None
        how = rng.randrange(7)
        if how == 0:
            thing.__dict__[name] = value
        elif how == 1:
            object.__setattr__(thing, name, value) if not isinstance(
                thing, torch.nn.Module
            ) else None
        elif how == 2:
            vars(thing).pop(name, None) if not isinstance(thing, torch.nn.Module) else None
        elif how == 3 and name in vars(thing) and type(thing) in (Plain, Other, Inline):
            delattr(thing, name)
        elif how == 4 and type(thing) in (Inline, Other, Plain):
            store_a(thing, value)
        elif how == 5 and type(thing) in (Plain, Other, Inline):
            own = rng.choice((dict(vars(thing)), {"a": 1.5, "b": "b"}))
            rng.choice((setattr, object.__setattr__))(thing, "__dict__", own)
            if rng.random() < 0.1:
                del thing.__dict__
        elif type(thing) is not types.MethodType:
            setattr(thing, name, value)

    def complete(self) -> None:
        """x keeps one object of each kind."""
        wanted = ("inline", "list", "dict", "cls", "function", "module", "tensor", "slotted", "order", "set", "row",
                  "loose", "deque", "tuple", "plain", "name", "ref", "method", "inline_method")  # fmt: skip
        kinds = (Inline, list, dict, type, types.FunctionType, torch.nn.Linear, torch.nn.Parameter, Slotted,
                 collections.OrderedDict, set, Row_, Loose, collections.deque)  # fmt: skip
        for name, kind in zip(wanted, kinds, strict=False):
            if not isinstance(vars(self.x).get(name), kind):
                self.renew()
        if any(name not in vars(self.x) for name in wanted):
            self.renew()

    def change_kind(self) -> None:
        thing = self.rng.choice([o for o in self.objects() if type(o) in (Inline, Other)])
        self.rng.choice((setattr, object.__setattr__))(
            thing, "__class__", self.rng.choice((Inline, Other))
        )

    def change_container(self) -> None:
        rng, x = self.rng, self.x
        rng.choice([
            lambda: x.list.__setitem__(rng.randrange(-1, 1), self.value()) if x.list else None,
            lambda: x.list.append(self.value()), lambda: x.list.insert(0, self.value()),
            lambda: x.list.pop() if x.list else None, lambda: x.list.sort(key=id), x.list.clear,
            lambda: x.row.append(1), lambda: x.row.__setitem__(slice(0, 1), [self.value()]),
            lambda: x.dict.__setitem__(rng.choice("abc"), self.value()), lambda: x.dict.pop(rng.choice("abc"), None),
            lambda: x.dict.update(a=self.value()), x.dict.clear,
            lambda: x.dict.setdefault("".join(["a"]), self.value()),
            lambda: x.order.move_to_end(next(iter(x.order))) if x.order else None,
            lambda: x.order.__setitem__(rng.choice("ab"), 1), lambda: x.order.pop("a", None),
            lambda: x.set.add(rng.choice((1, "a", 2))), lambda: x.set.discard(rng.choice((1, "a", 2))),
            lambda: x.deque.append(1), lambda: x.deque.popleft() if x.deque else None,
            lambda: x.loose.__setitem__(rng.choice("ab"), self.value()), lambda: dict.pop(x.loose, "a", None),
            lambda: setattr(x.slotted, rng.choice("ab"), self.value()),
        ])()  # fmt: skip
        if len(x.list) > 12:
            del x.list[4:]

    def change_class(self) -> None:
        rng = self.rng
        cls = rng.choice((self.x.cls, Inline, Other, Plain))
        name = rng.choice(("level", "late", "a"))
        if rng.random() < 0.4 and name in vars(cls) and name != "level":
            delattr(cls, name)
        elif rng.random() < 0.1 and cls is self.x.cls:
            cls.__bases__ = rng.choice(((Inline,), (Other,)))
        else:
            setattr(cls, name, self.value())

    def change_function(self) -> None:
        function = self.x.function
        self.rng.choice([
            lambda: setattr(function, "__code__", self.rng.choice((first, second)).__code__),
            lambda: setattr(function, "__defaults__", self.rng.choice(((1,), (2,), None))),
            lambda: setattr(function, "__kwdefaults__", self.rng.choice(({"more": 3}, None))),
            lambda: (function.__kwdefaults__ or {}).update(more=4),
        ])()  # fmt: skip

    def change_cell(self) -> None:
        cell = self.closure[0]
        if self.rng.random() < 0.2:
            if cell != types.CellType():
                del cell.cell_contents
        else:
            cell.cell_contents = self.value()

    def change_tensor(self) -> None:
        x, rng = self.x, self.rng
        tensor = rng.choice((x.tensor, x.module.weight))
        with torch.no_grad():
            rng.choice([
                lambda: setattr(tensor, "data", torch.zeros(rng.choice((2, 3)), 3)),
                lambda: setattr(tensor, "data", torch.zeros(2, 3, dtype=rng.choice((torch.float32, torch.float64)))),
                lambda: tensor.set_(torch.zeros(3, 2, dtype=tensor.dtype)) if not tensor.requires_grad else None,
                lambda: tensor.resize_(rng.choice((2, 3)), 3) if not tensor.requires_grad else None,
                lambda: tensor.requires_grad_(rng.random() < 0.5), tensor.t_, lambda: tensor.add_(1),
                lambda: setattr(tensor, "data", tensor.data.t()), lambda: tensor.unsqueeze_(0).squeeze_(0),
                lambda: setattr(tensor, "grad", None), lambda: x.module.to(torch.float64), lambda: x.module.float(),
                lambda: x.module.register_parameter("weight", torch.nn.Parameter(torch.zeros(2, 2))),
                lambda: x.module.load_state_dict(torch.nn.Linear(2, 3).state_dict(), strict=False, assign=True),
                lambda: x.module._forward_hooks.__setitem__(1, first), x.module._forward_hooks.clear,
                lambda: torch.utils.swap_tensors(tensor, torch.nn.Parameter(torch.zeros(rng.choice((2, 3)), 3))),
                lambda: torch._C._swap_tensor_impl(tensor, torch.zeros(rng.choice((2, 3)), 3)),
            ])()  # fmt: skip


@pytest.fixture(autouse=True)
def classes_stay() -> Any:
    kept = {cls: dict(vars(cls)) for cls in (Inline, Other, Plain)}
    yield
    for cls, attributes in kept.items():
        for name in set(vars(cls)) - set(attributes):
            delattr(cls, name)
        cls.level = attributes.get("level", "class")


@pytest.mark.parametrize("seed", range(16))
def test_memory_says_what_the_mirror_says(seed: int) -> None:
    world = World(random.Random(seed))
    outcomes = collections.Counter()
    for _ in range(40):
        rows = world.facts()
        program = compile_rows(rows, [], world.frame.__code__)
        for step in range(30):
            for _again in range(3):
                view = world.view()
                said = program.check((world.x, world.y), world.scope, world.closure)
                assert said == mirror(rows, view), (step, [str(r.source) for r in rows])
                outcomes[said == -1, program.remembered > 0] += 1
            for _change in range(world.rng.randrange(3)):
                world.change()
            if said != -1 and step > 10:
                break
    failed = outcomes[False, True] + outcomes[False, False]
    assert outcomes[True, True] > 100 and failed > 10, outcomes


def test_what_repeats_is_remembered_and_what_changes_is_seen() -> None:
    thing = Plain()
    rows = [Row("equals", Source("attr", Source("local", None, "x"), "a"), 1.5)]
    code = frame_of(None).__code__
    program = compile_rows(rows, [], code)
    assert [program.check((thing, None), {}) for _ in range(4)] == [-1] * 4
    assert program.remembered == 1
    thing.a = 2.5
    assert program.check((thing, None), {}) == 0
    thing.a = 1.5
    assert [program.check((thing, None), {}) for _ in range(4)] == [-1] * 4


def test_several_objects_are_remembered_side_by_side() -> None:
    things = [Plain() for _ in range(4)]
    rows = [Row("equals", Source("attr", Source("local", None, "x"), "a"), 1.5)]
    program = compile_rows(rows, [], frame_of(None).__code__)
    for _ in range(4):
        assert [program.check((thing, None), {}) for thing in things] == [-1] * 4
    assert program.remembered == 4
    things[2].a = 0
    assert [program.check((thing, None), {}) for thing in things] == [-1, -1, 0, -1]


def test_inputs_are_those_of_now() -> None:
    x = Plain()
    source = Source("attr", Source("local", None, "x"), "a")
    program = compile_rows([Row("type", source, float)], [source], frame_of(None).__code__)
    for number in range(20):
        x.a = float(number)
        for _ in range(4):
            assert program.gather((x, None), {}) == (float(number),)
    x.__dict__ = {"a": 3.25}
    assert program.gather((x, None), {}) == (3.25,)


def test_nothing_is_kept_alive() -> None:
    class Owner:
        pass

    owner, made = Owner(), type("Made", (), {"a": 1})
    owner.thing, owner.list = Inline(), [Inline(), (1, Inline())]  # type: ignore[attr-defined]
    owner.made, owner.tensor = made(), torch.zeros(2)  # type: ignore[attr-defined]
    x = Source("local", None, "x")
    tensor = Source("attr", x, "tensor")
    rows = [
        Row("equals", Source("attr", Source("attr", x, "thing"), "a"), 1.5),
        Row("type", Source("item", Source("attr", x, "list"), 0), Inline),
        Row("type", Source("item", Source("item", Source("attr", x, "list"), 1), 1), Inline),
        Row("no_class_attr", Source("attr", x, "made"), "absent"),
        Row("tensor", tensor, tensor_spec(owner.tensor)),  # type: ignore[attr-defined]
    ]
    program = compile_rows(rows, [tensor], frame_of(None).__code__)
    for _ in range(5):
        assert program.check((owner, None), {}) == -1
    assert program.remembered == 1
    gone = [weakref.ref(o) for o in (owner, owner.thing, owner.tensor, made, owner.list[1][1])]  # type: ignore[attr-defined]
    del owner, made
    gc.collect()
    assert [ref() for ref in gone] == [None] * 5
    assert program.check((Plain(), None), {}) == 0


def test_a_float_that_comes_to_the_address_of_another() -> None:
    rows = [Row("equals", Source("item", Source("attr", Source("local", None, "x"), "c"), 0), 0.25)]
    program = compile_rows(rows, [], frame_of(None).__code__)
    thing = Plain()
    for number in range(200):
        thing.c[0] = float("0.25")
        for _ in range(3):
            assert program.check((thing, None), {}) == -1
        thing.c[0] = None
        thing.c[0] = number + 0.5
        assert program.check((thing, None), {}) == 0


def test_objects_that_come_to_the_address_of_others() -> None:
    rows = [
        Row("type", Source("item", Source("local", None, "x"), 0), Inline),
        Row("equals", Source("attr", Source("item", Source("local", None, "x"), 0), "a"), 1.5),
    ]
    program = compile_rows(rows, [], frame_of(None).__code__)
    for number in range(200):
        holder = [Inline()]
        for _ in range(3):
            assert program.check((holder, None), {}) == -1
        holder.clear()
        holder.append([Inline, Other, Slotted][number % 3]())
        if number % 3 == 0:
            holder[0].a = 2.5
        assert program.check((holder, None), {}) >= 0


def test_dicts_that_come_to_the_address_of_others() -> None:
    rows = [Row("equals", Source("item", Source("item", Source("local", None, "x"), 0), "a"), 1)]
    program = compile_rows(rows, [], frame_of(None).__code__)
    holder: list[Any] = [None]
    for number in range(200):
        holder[0] = {"a": 1}
        for _ in range(3):
            assert program.check((holder, None), {}) == -1
        holder[0] = None
        holder[0] = {"a": 2} if number % 2 else {"b": 1}
        assert program.check((holder, None), {}) == 0


def test_how_dicts_are_watched() -> None:
    assert _native.how_dicts_are_watched().split(";")[0] in (
        "watchers", "versions", "versions and their counter",
    )  # fmt: skip


def test_programs_come_and_go() -> None:
    thing = Plain()
    rows = [Row("equals", Source("attr", Source("local", None, "x"), "a"), 1.5)]
    programs = []
    for number in range(300):
        programs.append(compile_rows(rows, [], frame_of(None).__code__))
        for program in programs[-3:]:
            assert program.check((thing, None), {}) == -1
        if number % 7 == 0:
            programs.clear()
    thing.a = 0
    assert all(program.check((thing, None), {}) == 0 for program in programs)
    programs.clear()
    thing.a = 1


@pytest.mark.parametrize("kind", [str, lambda text: "".join(list(text))])
def test_stores_under_other_keys(kind: Callable[[str], str]) -> None:
    """With watchers they do not matter; with versions they make the rows decide. Either way what is read is seen."""
    thing, scope = Plain(), {"g": 1.5, "__builtins__": builtins}
    own = vars(thing)
    rows = [
        Row("equals", Source("attr", Source("local", None, "x"), "a"), 1.5),
        Row("no_attr", Source("local", None, "x"), "late"),
        Row("equals", Source("global", None, "g"), 1.5),
        Row("len", Source("attr", Source("local", None, "x"), "d"), 1),
    ]
    program = compile_rows(rows, [], frame_of(None).__code__)
    for number in range(50):
        for _ in range(3):
            assert program.check((thing, None), scope) == -1
        scope[kind("other")] = own[kind("more")] = number
        assert program.check((thing, None), scope) == -1
        for place, key, value, row in (
            (own, "a", 2.5, 0), (own, "late", 1, 1), (scope, "g", 2, 2), (own, "d", {}, 3), (thing.d, "z", 1, 3),
        ):  # fmt: skip
            before = place.get(key)
            place[kind(key)] = value
            assert program.check((thing, None), scope) == row
            if before is None:
                del place[kind(key)]
            else:
                place[kind(key)] = before
            assert program.check((thing, None), scope) == -1


def test_a_key_of_another_class_that_is_equal() -> None:
    class Same(str):
        __slots__ = ()

    class Equal:
        def __hash__(self) -> int:
            return hash("a")

        def __eq__(self, other: object) -> bool:
            return other == "a"

    for key in (Same("a"), Equal()):
        holder = [{"a": 1.5}]
        rows = [
            Row("equals", Source("item", Source("item", Source("local", None, "x"), 0), "a"), 1.5)
        ]
        program = compile_rows(rows, [], frame_of(None).__code__)
        for _ in range(4):
            assert program.check((holder, None), {}) == -1
        holder[0][key] = 2.5
        assert program.check((holder, None), {}) == 0
