"""Options: the table of environment variables, and `JitConfig`, the options of one function.

In: `os.environ` and keyword arguments. Out: frozen objects with checked values. A bad value raises
`OptionError`, which names the variable, the allowed values and the nearest word. Nothing else in
graftjit reads the environment; `runtime.process.session` holds the result.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...ir.dataclass import dataclass
from ..errors import OptionError, did_you_mean

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("", "0", "false", "no", "off")


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError("1 or 0 (also true/false, yes/no, on/off)")
    return word in _TRUE


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        word = text.strip()
        if not word.isdecimal() or not low <= int(word) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(word)

    return parse


def _folder(text: str) -> Path:
    if "\0" in text or not text.strip():
        raise ValueError("the path of a folder")
    path = Path(text).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise ValueError("the path of a folder; this is a file")
    return path


# Native routes to torch that can be disabled for tests and debugging; see
# runtime/guards/tensor_access.py.
ROUTES = (
    "handle",
    "keys",
    "requires_grad",
    "trace",
    "history",
    "wrap",
    "errors",
    "state",
    "program",
    "operators",
    "threads",
)


def _routes(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if not names <= set(ROUTES):
        raise ValueError("names out of " + ", ".join(ROUTES) + ", separated by commas")
    return names


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable: its option, the parser of its text, and its meaning."""

    name: str
    option: str
    parse: Callable[[str], Any]
    meaning: str


VARIABLES: tuple[Variable, ...] = (
    Variable(
        "GRAFTJIT_DISABLE", "disable", _flag, "1: compile nothing, run everything in plain Python"
    ),
    Variable("GRAFTJIT_CACHE_DIR", "cache_dir", _folder, "folder of the kernel store"),
    Variable(
        "GRAFTJIT_CACHE_MIB",
        "cache_mib",
        _whole(1, 1 << 20),
        "largest size of the kernel store in MiB",
    ),
    Variable(
        "GRAFTJIT_DEBUG",
        "debug",
        _whole(0, 5),
        "log: 1 breaks and recompiles, 2 frames, 3 kernels, 4 graphs and passes, 5 everything",
    ),
    Variable(
        "GRAFTJIT_CHECK",
        "check",
        _flag,
        "1: mirror guards, verify graphs, run eager beside compiled",
    ),
    Variable(
        "GRAFTJIT_TRACE", "trace", _folder, "folder for traces: a file of JSON lines per process"
    ),
    Variable(
        "GRAFTJIT_THREADS",
        "threads",
        _whole(1, 4096),
        "threads per kernel; default: torch's number",
    ),
    Variable("GRAFTJIT_TUNE", "tune", _flag, "0: measure no schedules at level O2; default: 1"),
    Variable(
        "GRAFTJIT_ROOFLINE",
        "roofline",
        _flag,
        "0: reports do not measure what the machine can do (a fifth of a second, once); default: 1",
    ),
    Variable(
        "GRAFTJIT_TRIALS",
        "trials",
        _flag,
        "0: no call runs as written to compare times, no recompile is put off; default: 1",
    ),
    Variable(
        "GRAFTJIT_WITHOUT", "without", _routes, "native routes to turn off: " + ", ".join(ROUTES)
    ),
    Variable("CXX", "cxx", str.strip, "the C++ compiler; default: the first of g++, clang++, c++"),
)


@dataclass(frozen=True, slots=True)
class Options:
    """The values of the environment variables, read once; one field for each row of `VARIABLES`."""

    disable: bool = False
    cache_dir: Path | None = None
    cache_mib: int = 1024
    debug: int = 0
    check: bool = False
    trace: Path | None = None
    threads: int | None = None
    tune: bool = True
    roofline: bool = True
    trials: bool = True
    without: frozenset[str] = frozenset()
    cxx: str | None = None


def read_environment(environ: Mapping[str, str] | None = None) -> Options:
    """Options from the environment. A variable that is unset or empty has its default.

    Raises OptionError for a value that is not allowed.
    """
    environ = os.environ if environ is None else environ
    found: dict[str, Any] = {}
    for variable in VARIABLES:
        text = environ.get(variable.name, "")
        if text == "":
            continue
        try:
            found[variable.option] = variable.parse(text)
        except ValueError as error:
            raise OptionError(
                f"the environment variable {variable.name} has a value that is not allowed",
                expected=str(error),
                found=repr(text),
                todo=f"set {variable.name} as expected, or unset it ({variable.meaning})",
            ) from None
    return Options(**found)


def unknown_variables(environ: Mapping[str, str] | None = None) -> tuple[tuple[str, str], ...]:
    """(name, hint) of set GRAFTJIT_ variables that are not in the table, for `doctor`. They may
    belong to another version, so they are reported, not refused."""
    environ = os.environ if environ is None else environ
    names = [variable.name for variable in VARIABLES]
    return tuple(
        (name, did_you_mean(name, names).lstrip("; "))
        for name in sorted(environ)
        if name.startswith("GRAFTJIT_") and name not in names
    )


_WORDS: dict[str, tuple[str, ...]] = {
    "jit_level": ("O0", "O1", "O2"),
    "exec_mode": ("auto", "sink", "no_sink"),
    "jit_syntax_level": ("STRICT", "LAX"),
}
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "dynamic": ((bool, type(None)), "None, True or False"),
    "background": ((bool,), "True or False"),
    "tune": ((bool,), "True or False"),
    "claims_compiling": ((bool,), "True or False"),
    "never_slower": ((bool,), "True or False"),
    "recompile_limit": ((int,), "a whole number of at least 1"),
    "memory_budget": (
        (float, int, type(None)),
        "None, a float from 0.0 to 1.0, or a whole number of bytes",
    ),
    "segments": ((int, tuple, type(None)), "None, a number from 1 on, or a tuple of such"),
}


def _in_range(name: str, value: Any) -> bool:
    if name == "memory_budget" and value is not None:
        return value >= 0 and (type(value) is int or value <= 1)
    if type(value) is tuple:
        return bool(value) and all(type(one) is int and one >= 1 for one in value)
    return type(value) is not int or value >= 1


class _CheckedNames(type):
    """Raises OptionError with the nearest field name for an unknown keyword."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for name in options:
            if name not in names:
                raise OptionError(
                    f"JitConfig has no option {name!r}" + did_you_mean(name, names),
                    expected=", ".join(names),
                    found=name,
                )
        return super().__call__(*args, **options)


@dataclasses.dataclass(frozen=True)  # a dataclass of the standard library: users see its parameters
class JitConfig(metaclass=_CheckedNames):
    """How one function is compiled.

    jit_level         "O0": captured, operators run one by one by ATen, bit-equal to eager;
                      "O1": fusion; "O2": also epilogue fusion, packed weights, tuning
    exec_mode         "sink": the whole graph is one native call, on a GPU one CUDA graph;
                      "no_sink": step by step; "auto": "sink" at O2
    jit_syntax_level  "STRICT": the first graph break raises; "LAX": Python runs what breaks
    dynamic           None: a size becomes symbolic after it has varied; True: at once; False: never
    background        True: kernels are built in a thread; until then the operators run one by one
    tune              False: at O2, use the default schedules and time no alternatives
    recompile_limit   entries per frame; beyond it the least useful entry is evicted
    memory_budget     memory that a forward may save for its backward: a float from 0.0 to 1.0 is a
                      part of the bytes that it saves without a budget, an int is a number of bytes
                      per graph. With less memory, more is computed again in the backward (products,
                      convolutions and attention, too), where it costs the least estimated time;
                      0.0: all that may run again. Random numbers, reductions and what depends on
                      memory that the program writes to may not. None: pointwise work alone runs
                      again
    segments          how a backward is divided, so that gradients of some leaves are accumulated
                      before the others are computed: None: for a reducer of
                      DistributedDataParallel, as its buckets; a number of segments of equal size;
                      or a tuple of bytes, one for each segment (the last one repeats)
    claims_compiling  True: `torch.compiler.is_compiling()` returns True during capture, so that the
                      program takes its path for compilers; False: it returns what it does in plain
                      Python
    never_slower      True: a few calls run as written, and where that is faster for good, all do;
                      recompiles are made as long as their entries are used; False: neither
    """

    jit_level: str = "O1"
    exec_mode: str = "auto"
    jit_syntax_level: str = "LAX"
    dynamic: bool | None = None
    background: bool = False
    tune: bool = True
    recompile_limit: int = 32
    claims_compiling: bool = False
    memory_budget: float | int | None = None
    segments: int | tuple[int, ...] | None = None
    never_slower: bool = True

    def __post_init__(self) -> None:
        for name, words in _WORDS.items():
            value = getattr(self, name)
            if value not in words:
                raise OptionError(
                    f"{name}={value!r} is not allowed"
                    + (did_you_mean(value, words) if isinstance(value, str) else ""),
                    expected=" or ".join(repr(word) for word in words),
                    found=repr(value),
                )
        for name, (types, text) in _TYPES.items():
            value = getattr(self, name)
            if type(value) not in types or not _in_range(name, value):
                raise OptionError(
                    f"{name}={value!r} is not allowed", expected=text, found=repr(value)
                )

    @property
    def strict(self) -> bool:
        """Whether the first graph break raises."""
        return self.jit_syntax_level == "STRICT"

    def replace(self, **changes: Any) -> JitConfig:
        """A copy with some options changed, checked again."""
        return type(self)(**{**dataclasses.asdict(self), **changes})


# Configurations by the numbers that native code uses. Number 0 is that of frames outside any
# callable.
_NUMBERED = [JitConfig()]
_NUMBERING = threading.Lock()


def number_of(config: JitConfig) -> int:
    """The number of a configuration, assigned at first use."""
    with _NUMBERING:
        if config not in _NUMBERED:
            _NUMBERED.append(config)
        return _NUMBERED.index(config)


def by_number(number: int) -> JitConfig:
    return _NUMBERED[number]
