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
import random
import signal
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .describe import Describer, difference, lines_of, message, random_state, without_frames
from .grammar import generate
from .pool import Pool, apart
from .statements import Program, Statement

Transform = Callable[[Any], Any]
WATCHED = (
    "GI", "GF", "GT", "GL", "GD", "OBJ", "Thing", "Child", "COUNTER", "LOG", "MAGIC", "Base", "Stack", "Color", "Vec", "NET", "WIDE",
)  # fmt: skip
SECONDS = 60  # of one program
_FAULTS = ("PL205", "FB303", "FB306")
MOST = 50  # differences, after which a run stops


def identity(function: Any) -> Any:
    return function


# -- one run ------------------------------------------------------------------------------------------


def run(program: Program, transform: Transform) -> list[tuple[str, Any]]:
    """One (step, description) a step. Leaves torch's global settings as they were."""
    source = program.source()
    file = f"<program {program.seed}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules["fuzzed"] = module = types.ModuleType("fuzzed")  # dataclasses look for it
    space = vars(module)
    grad = torch.is_grad_enabled()
    random.seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(source, file, "exec"), space)
            space["_jitted"] = transform(space["f"])
            found = [
                (step, _step(step, space, file if program.traced else "")) for step in program.steps
            ]
            return [*found, ("internal faults", _faults(space["_jitted"]))]
    finally:
        torch.set_grad_enabled(grad)


def _step(step: str, space: dict[str, Any], file: str) -> Any:
    printed = io.StringIO()
    # Not torch.manual_seed, which asks every device and costs more than a step.
    torch.default_generator.manual_seed(0)
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
            lines = lines_of(error, file)
            outcome = ("raised", type(error).__name__, message(error), lines, error)
            without_frames(error, set())
        watched = {name: space[name] for name in WATCHED if name in space}
        state = {"arguments": arguments, "globals": watched, "grad": torch.is_grad_enabled()}
        moved = random_state()
        described = Describer().describe([outcome, state])  # may run generators, which may print
    return [*described[1], printed.getvalue(), moved]


def _faults(jitted: Any) -> list[str]:
    """The report's lines of faults inside of graftjit: a frame ran in plain Python or a graph by ATen, but it must not
    come to that."""
    report = getattr(jitted, "report", None)
    return [str(note) for note in report().notes if note.code in _FAULTS] if report else []


# -- comparing ----------------------------------------------------------------------------------------


def _outcomes(plain: Any, other: Any) -> str | None:
    """What a reader wants first: one returned and the other raised, or they raised different things."""
    first, second = plain[0][1], other[0][1]
    if first[0] == second[0] and (first == second or first[0] != ("str", "raised")):
        return None
    return f"{_told(first)}, not {_told(second)}"


def _told(outcome: Any) -> str:
    (_kind, what), *fields = outcome
    if what != "raised":
        return str(what)
    return " ".join(["raised", *(str(field[1]).partition("\n")[0] for field in fields[:2])])


class _TooLong(BaseException):
    """A program whose data grow at each call does not end in time, in plain Python either."""


@contextlib.contextmanager
def _in_time(seconds: float) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def check(program: Program, transform: Transform) -> str | None:
    """Run plain and transformed here: what differs, or None. Errors of the transform itself count. In the main
    thread only: the plain run has its time."""
    try:
        with _in_time(SECONDS / 10):
            plain = run(program, identity)
    except (Exception, _TooLong):  # a reduction went too far: the module itself does not run
        return None
    try:
        other = run(program, transform)
    except Exception:
        return "the transform failed\n" + traceback.format_exc()
    for number, ((step, wanted), (_step_text, found)) in enumerate(zip(plain, other, strict=True)):
        if repr(wanted) == repr(found):  # nearly always, and quick
            continue
        if number < len(program.steps) and _told(wanted[0][1]).startswith("raised RecursionError"):
            return None  # how deep it came, and what that left half done, is a matter of frames
        outcomes = _outcomes(wanted, found) if number < len(program.steps) else None
        if where := outcomes or difference(wanted, found):
            return f"step {number} {step[:60]}: plain {where}"
    return None


def check_apart(program: Program, transform: Transform) -> str | None:
    """`check` in a forked child: a crash, an endless loop, a damaged interpreter stay there."""
    return apart(lambda: check(program, transform), SECONDS // 3)


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


def main(
    arguments: list[str] | None = None,
    generate: Callable[..., Program] = generate,
    transform_name: str = "graftjit:jit",
    size: int = 9,
    description: str | None = __doc__,
) -> int:
    """The command line of a fuzzer whose programs `generate(seed, size)` makes."""
    parser = argparse.ArgumentParser(prog=generate.__module__, description=description)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--size", type=int, default=size, help="statements of a program")
    parser.add_argument("--jobs", type=int, default=1, help="processes that run programs")
    parser.add_argument(
        "--transform",
        default=transform_name,
        help="module:function[,O0] or identity; O0 builds no kernels",
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
            print(script(generate(seed, options.size), options.transform.partition(",")[0]))
        return 0
    torch.set_num_threads(1)  # children are forked
    # What is imported at a first use is imported here, for all children; torch.func.grad takes the second.
    check(generate(0, options.size), transform)
    importlib.import_module("torch._dynamo")
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
        if len(failed) == MOST:
            print(f"{MOST} programs differ: stopped after {number}")
            return 1
    print(
        f"{options.count - len(failed)} of {options.count} programs agree "
        f"(seeds {seeds.start} to {seeds.stop - 1}, size {options.size}, {time.monotonic() - begin:.0f} s); "
        f"failed: {failed}"
    )
    return bool(failed)


def _print_small(program: Program, transform: Transform, options: argparse.Namespace) -> None:
    first = check_apart(program, transform) or ""

    def fails(candidate: Program) -> bool:
        """In the same way: a loop without end or a name that is gone is mostly what making small has done."""
        what = check_apart(candidate, transform)
        return what is not None and all(
            (sign in what) == (sign in first)
            for sign in ("died", "plain raised NameError", "CheckError", "fault")
        )

    small = minimise(program, fails, options.seconds)
    print(f"\n# made small: {check_apart(small, transform)}")
    print(script(small, options.transform.partition(",")[0]))


if __name__ == "__main__":
    sys.exit(main())
