"""Runs a script or module in this process like `python SCRIPT` or `python -m MODULE`.

In: its name and its own arguments. Out: its exit status, and its namespace, which keeps its
compiled functions alive. `sys.argv`, `sys.path[0]`, `__main__` and the traceback of a failure are
those of plain Python. `explain` and `bench` use this module.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import pkgutil
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any

from ..ir.dataclass import dataclass
from ..runtime.errors import UserError, did_you_mean
from .parser import near_file

_OURS = {__file__}  # files whose frames are hidden in tracebacks


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run. `name`: for display; `first`: the first item of sys.path, or None to leave
    it unchanged."""

    name: str
    argv: tuple[str, ...]
    first: str | None
    file: str
    spec: ModuleSpec | None


def script(path: str, arguments: Sequence[str]) -> Program:
    """A file, or a folder or archive that contains `__main__.py`. Raises UserError if it does not
    exist."""
    found = Path(path)
    if not found.exists():
        raise UserError(f"there is no file {path}{near_file(path)}", expected="a Python program")
    file = os.path.abspath(path)
    importer = pkgutil.get_importer(path)
    if not found.is_file() or importer is not None:
        spec = importer.find_spec("__main__", None) if importer is not None else None
        if spec is None:
            raise UserError(f"{path} has no __main__.py", expected="a Python program", found=path)
        return Program(found.name, (path, *arguments), file, spec.origin or file, spec)
    return Program(found.name, (path, *arguments), os.path.dirname(file), file, None)


def module(name: str, arguments: Sequence[str]) -> Program:
    """A module by name, or the `__main__` of a package. Raises UserError if it does not exist."""
    with _path(os.getcwd()):
        spec = _spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name, spec = f"{name}.__main__", _spec(f"{name}.__main__")
    if spec is None or spec.loader is None or spec.origin is None:
        known = {found.name for found in pkgutil.iter_modules([os.getcwd()])}
        raise UserError(
            f"there is no module {name}{did_you_mean(name, known)}",
            expected="a module that Python finds",
        )
    return Program(name, (spec.origin, *arguments), os.getcwd(), spec.origin, spec)


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:  # a parent is missing, or is no package
        raise UserError(f"the module {name} cannot be found", found=str(error)) from None


def run(program: Program) -> tuple[int, dict[str, Any]]:
    """Run the program; returns (exit status, namespace). Failures are printed by `sys.excepthook`,
    as in Python. Waits for the program's threads."""
    main = _main_module(program)
    with _path(program.first), _in_place(main, program.argv):
        status = 0
        try:
            exec(_code(program), main.__dict__)
        except SystemExit as stop:
            status = _status(stop.code)
        except BaseException as error:  # any exception ends the program, but not this process
            shown = _without_ours(error)
            sys.excepthook(type(shown), shown, shown.__traceback__)
            status = 130 if isinstance(error, KeyboardInterrupt) else 1
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        return status, main.__dict__


def _code(program: Program) -> types.CodeType:
    if program.spec is not None and program.spec.loader is not None:
        code = program.spec.loader.get_code(program.spec.name)  # type: ignore[attr-defined]
        if code is None:
            raise UserError(f"{program.name} has no code", expected="a Python program")
        return code
    with io.open_code(program.file) as stream:
        return compile(stream.read(), program.file, "exec", dont_inherit=True)


def _main_module(program: Program) -> types.ModuleType:
    spec, main = program.spec, types.ModuleType("__main__")
    main.__dict__.update(
        __file__=program.file,
        __cached__=None,
        __annotations__={},
        __builtins__=sys.modules["builtins"],
        __spec__=spec,
        __package__=None if spec is None else spec.parent,
        __loader__=SourceFileLoader("__main__", program.file) if spec is None else spec.loader,
    )
    return main


def _status(code: object) -> int:
    """The exit status for the argument of sys.exit(), as in Python."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


@contextlib.contextmanager
def _in_place(main: types.ModuleType, argv: tuple[str, ...]) -> Iterator[None]:
    before, ours = sys.argv[:], sys.modules.get("__main__")
    sys.argv[:] = argv
    sys.modules["__main__"] = main
    try:
        yield
    finally:
        sys.argv[:] = before
        if ours is not None:
            sys.modules["__main__"] = ours


@contextlib.contextmanager
def _path(first: str | None) -> Iterator[None]:
    """Put `first` at the front of sys.path, in place of the item that Python put there for
    graftjit. Nothing changes under `python -P`."""
    before = sys.path[:]
    if first is not None and not sys.flags.safe_path:
        ours = ("", os.getcwd(), os.path.dirname(os.path.abspath(sys.argv[0])))
        sys.path[: int(bool(before) and before[0] in ours)] = [first]
    try:
        yield
    finally:
        sys.path[:] = before


def hide(file: str) -> None:
    """Hide frames of this file in the traceback of a script's failure."""
    _OURS.add(file)


def _without_ours(error: BaseException) -> BaseException:
    """The same exception, with graftjit's frames removed from its traceback and those of its
    causes."""
    seen: set[int] = set()
    following: list[BaseException | None] = [error]
    while following:
        one = following.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = _cut(one.__traceback__)
            following += [one.__cause__, one.__context__]
    return error


def _cut(trace: types.TracebackType | None) -> types.TracebackType | None:
    kept: list[types.TracebackType] = []
    while trace is not None:
        if trace.tb_frame.f_code.co_filename not in _OURS:
            kept.append(trace)
        trace = trace.tb_next
    following = None
    for one in reversed(kept):
        one.tb_next = following
        following = one
    return following
