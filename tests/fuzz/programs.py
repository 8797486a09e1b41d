"""Fuzz whole programs: a Python function with calls and mutations in between, plain against compiled.

    python -m tests.fuzz.programs --seed 0 --count 200
    python -m tests.fuzz.programs --seed 17 --show

`run` executes a program once through a transform (`graftjit.jit`, or the identity for the plain run) and describes
all that can be seen: results, exceptions, printed text, arguments and globals afterwards, identities, aliasing.
`difference` names the first place where two descriptions part. A failing program is made small by `minimise` and
printed ready to paste. Every run happens in a forked child, so that a crash is a finding like any other.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import io
import linecache
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .grammar import Program, Statement, generate
from .pool import Pool, apart

Transform = Callable[[Any], Any]
WATCHED = ("GI", "GF", "GT", "GL", "GD", "OBJ", "Thing", "Child", "COUNTER")
SECONDS = 60  # of one program


def identity(function: Any) -> Any:
    return function


# -- one run ------------------------------------------------------------------------------------------


def run(program: Program, transform: Transform) -> list[tuple[str, Any]]:
    """One (step, description) a step. Leaves torch's global settings as they were."""
    source = program.source()
    file = f"<program {program.seed}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = {"__name__": "fuzzed"}
    grad = torch.is_grad_enabled()
    try:
        exec(compile(source, file, "exec"), space)
        space["_jitted"] = transform(space["f"])
        return [(step, _step(step, space)) for step in program.steps]
    finally:
        torch.set_grad_enabled(grad)


def _step(step: str, space: dict[str, Any]) -> Any:
    printed = io.StringIO()
    torch.default_generator.manual_seed(
        0
    )  # torch.manual_seed asks every device, and costs more than a step
    arguments: dict[str, Any] = {}
    with contextlib.redirect_stdout(printed):
        try:
            if step.startswith("("):
                arguments = eval(f"dict{step}", space)
                outcome: Any = ("returned", space["_jitted"](**arguments))
            else:
                exec(step, space)
                outcome = ("mutated", None)
        except Exception as error:
            outcome = ("raised", type(error).__name__, str(error))
    watched = {name: space[name] for name in WATCHED if name in space}
    state = {"arguments": arguments, "globals": watched, "grad": torch.is_grad_enabled()}
    return Describer().describe((outcome, printed.getvalue(), state))


class Describer:
    """Plain data for any value; an object met again, or a storage met again, is named by its first meeting."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.kept: list[Any] = []

    def describe(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str | bytes | type(...)):
            return (type(value).__name__, value)
        if id(value) in self.seen:
            return ("same as", self.seen[id(value)])
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)  # an id is only good while its object lives
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        name = type(value).__name__
        if isinstance(value, dict):
            return (name, [(self.describe(k), self.describe(v)) for k, v in value.items()])
        if isinstance(value, list | tuple):
            return (name, [self.describe(item) for item in value])
        if isinstance(value, set | frozenset):
            return (name, sorted(map(repr, value)))
        if isinstance(value, type):
            return ("class", value.__name__, self._public(vars(value)))
        if callable(value) and hasattr(value, "__code__"):
            cells = [c.cell_contents for c in value.__closure__ or ()]
            return ("function", value.__name__, self.describe(cells))
        if hasattr(value, "__self__"):
            return ("method", value.__name__, self.describe(value.__self__))
        if hasattr(value, "__dict__") and type(value).__module__ == "fuzzed":
            return ("object", name, self._public(vars(value)))
        return ("other", name, str(value) if isinstance(value, torch.Size) else "")

    def _public(self, names: Any) -> Any:
        return [(n, self.describe(v)) for n, v in names.items() if not n.startswith("__")]

    def _tensor(self, value: torch.Tensor) -> Any:
        storage = value.untyped_storage().data_ptr()
        group = self.storages.setdefault(storage, len(self.storages)) if storage else None
        strides = tuple(s for s, n in zip(value.stride(), value.shape, strict=True) if n > 1)
        facts = (str(value.dtype), tuple(value.shape), strides, value.requires_grad, group)
        return ("tensor", facts, value.detach().flatten().tolist())


# -- comparing ----------------------------------------------------------------------------------------


def difference(plain: Any, other: Any, path: str = "") -> str | None:
    """The first place where two descriptions part, or None. Floats agree within 1e-4."""
    if isinstance(plain, float) and isinstance(other, float):
        same = plain == other or math.isclose(plain, other, rel_tol=1e-4, abs_tol=1e-5)
        if same and plain == 0 == other:
            same = math.copysign(1, plain) == math.copysign(1, other)
        return (
            None
            if same or plain != plain and other != other
            else f"{path}: {plain!r}, not {other!r}"
        )
    if type(plain) is not type(other):
        return f"{path}: {plain!r}, not {other!r}"
    if isinstance(plain, list | tuple):
        if len(plain) != len(other):
            return f"{path}: {plain!r}, not {other!r}"
        found = (
            difference(p, o, f"{path}.{n}")
            for n, (p, o) in enumerate(zip(plain, other, strict=True))
        )
        return next((one for one in found if one), None)
    return None if plain == other else f"{path}: {plain!r}, not {other!r}"


def _outcomes(plain: Any, other: Any) -> str | None:
    """What a reader wants first: one returned and the other raised, or they raised different things."""
    (_kind, first), (_kind, second) = plain[1][0], other[1][0]
    if first[0] == second[0] and (first == second or first[0] != ("str", "raised")):
        return None
    return f"{_told(first)}, not {_told(second)}"


def _told(outcome: Any) -> str:
    (_kind, what), *fields = outcome
    if what != "raised":
        return str(what)
    return " ".join(["raised", *(str(field[1]).partition("\n")[0] for field in fields)])


def check(program: Program, transform: Transform) -> str | None:
    """Run plain and transformed here: what differs, or None. Errors of the transform itself count."""
    try:
        plain = run(program, identity)
    except Exception:  # a reduction went too far: the module itself does not run
        return None
    try:
        other = run(program, transform)
    except Exception:
        return "the transform failed\n" + traceback.format_exc()
    for number, ((step, wanted), (_step_text, found)) in enumerate(zip(plain, other, strict=True)):
        if repr(wanted) == repr(found):  # nearly always, and quick
            continue
        if where := _outcomes(wanted, found) or difference(wanted, found):
            return f"step {number} {step[:60]}: plain {where}"
    return None


def check_apart(program: Program, transform: Transform) -> str | None:
    """`check` in a forked child: a crash, an endless loop, a damaged interpreter stay there."""
    return apart(lambda: check(program, transform), SECONDS)


# -- making small -------------------------------------------------------------------------------------


def minimise(program: Program, fails: Callable[[Program], bool], seconds: float = 60.0) -> Program:
    """Delta-debugging over statements, steps and the prelude, as long as `fails` holds."""
    end = time.monotonic() + seconds
    program = copy.deepcopy(program)
    progress = True
    while progress and time.monotonic() < end:
        progress = False
        for undo in _reductions(program):
            if time.monotonic() > end:
                undo()
                break
            if fails(program):
                progress = True
            else:
                undo()
    return program


def _reductions(program: Program) -> Iterator[Callable[[], None]]:
    """Each step makes the program smaller in place and gives the way back."""
    yield from _drop_chunks(program.steps)
    for body in (program.body, program.prelude):
        yield from _reduce_body(body)


def _drop_chunks(items: list[Any]) -> Iterator[Callable[[], None]]:
    size = max(1, len(items) // 2)
    while size:
        start = len(items) - size
        while start >= 0:
            before = list(items)
            del items[start : start + size]
            yield _restore(items, before)
            start = min(start, len(items)) - size
        size //= 2


def _reduce_body(body: list[Statement]) -> Iterator[Callable[[], None]]:
    yield from _drop_chunks(body)
    number = len(body)
    while number > 0:
        number -= 1
        if number >= len(body):
            continue
        statement = body[number]
        for _head, inner in list(
            statement.blocks
        ):  # a compound statement gives way to one of its bodies
            before = list(body)
            body[number : number + 1] = inner
            yield _restore(body, before)
            if body != before:
                break
        else:
            if len(statement.blocks) > 1:
                yield from _drop_chunks(statement.blocks)
            for _head, inner in statement.blocks:
                yield from _reduce_body(inner)


def _restore(items: list[Any], before: list[Any]) -> Callable[[], None]:
    def undo() -> None:
        items[:] = before

    return undo


def script(program: Program, transform: str) -> str:
    """The program as a file that shows plain and transformed results, ready to paste."""
    module, _, name = transform.partition(":")
    lines = [program.source(), f"from {module} import {name}", f"jitted = {name}(f)"]
    for step in program.steps:
        if step.startswith("("):
            lines += [f"print(f{step})", f"print(jitted{step})"]
        else:
            lines.append(step)
    return "\n".join(lines) + "\n"


# -- command line -------------------------------------------------------------------------------------


def find_transform(name: str) -> Transform:
    """ "module:function", or "identity"; options of jit after a comma: "graftjit:jit,O0"."""
    if name == "identity":
        return identity
    path, _, level = name.partition(",")
    module, _, attribute = path.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if not level:
        return found
    config = importlib.import_module(module).JitConfig(jit_level=level)
    return lambda function: found(function, config=config)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz.programs", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--size", type=int, default=9, help="statements of a program")
    parser.add_argument("--jobs", type=int, default=1, help="processes that run programs")
    parser.add_argument(
        "--transform",
        default="graftjit:jit,O0",
        help="module:function[,O0] or identity; O0, the default, builds no kernels",
    )
    parser.add_argument("--seconds", type=float, default=60, help="for making one program small")
    parser.add_argument("--show", action="store_true", help="print programs, run nothing")
    parser.add_argument(
        "--keep-going", action="store_true", help="do not stop at the first failure"
    )
    options = parser.parse_args(arguments)
    transform = find_transform(options.transform)
    seeds = range(options.seed, options.seed + options.count)
    if options.show:
        for seed in seeds:
            print(script(generate(seed, options.size), options.transform))
        return 0
    torch.set_num_threads(1)  # children are forked
    check(
        generate(0), transform
    )  # what is imported at a first use is imported here, for all children
    pool = Pool(lambda seed: check(generate(seed, options.size), transform), options.jobs, SECONDS)
    failed: list[int] = []
    begin = time.monotonic()
    for number, (seed, what) in enumerate(pool.run(seeds), 1):
        if number % 1000 == 0:
            print(f"{number} programs, {number / (time.monotonic() - begin):.1f}/s", flush=True)
        if what is None:
            continue
        failed.append(seed)
        print(f"seed {seed}: {what}", flush=True)
        if not options.keep_going:
            _print_small(generate(seed, options.size), transform, options)
            return 1
    print(
        f"{options.count - len(failed)} of {options.count} programs agree "
        f"(seeds {seeds.start} to {seeds.stop - 1}, size {options.size}, {time.monotonic() - begin:.0f} s); "
        f"failed: {failed}"
    )
    return bool(failed)


def _print_small(program: Program, transform: Transform, options: argparse.Namespace) -> None:
    small = minimise(program, lambda p: check_apart(p, transform) is not None, options.seconds)
    print(f"\n# made small: {check_apart(small, transform)}")
    print(script(small, options.transform.partition(",")[0]))


if __name__ == "__main__":
    sys.exit(main())
