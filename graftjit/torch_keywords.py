"""The keywords of `torch.compile` that `jit` and `compile` take, as options of a JitConfig.

    mode                "default"; "reduce-overhead": one CUDA graph (exec_mode="sink");
                        "max-autotune": measured schedules (jit_level="O2"), with
                        "-no-cudagraphs" step by step; "lite": operators run one by one ("O0")
    backend             "inductor" and "graftjit": as without it; "eager", "aot_eager" and
                        "aot_eager_decomp_partition": operators run one by one ("O0")
    options             a dict: options of JitConfig by name, and Inductor's "max_autotune" and
                        "triton.cudagraphs"
    recompile_limit     see JitConfig
    isolate_recompiles  without effect: each callable has entries of its own
    name                without effect: reports name the function
    disable             True: the function or module itself is returned

Everything else is an OptionError that names what is there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from .runtime.errors import OptionError, describe, did_you_mean
from .runtime.process.options import JitConfig

_ONE_BY_ONE = {"jit_level": "O0"}
_MODES: dict[Any, dict[str, Any]] = {
    None: {},
    "default": {},
    "reduce-overhead": {"exec_mode": "sink"},
    "max-autotune": {"jit_level": "O2"},
    "max-autotune-no-cudagraphs": {"jit_level": "O2", "exec_mode": "no_sink"},
    "lite": _ONE_BY_ONE,
}
_BACKENDS: dict[Any, dict[str, Any]] = {
    None: {},
    "inductor": {},
    "graftjit": {},
    "eager": _ONE_BY_ONE,
    "aot_eager": _ONE_BY_ONE,
    "aot_eager_decomp_partition": _ONE_BY_ONE,
}
# options of Inductor that are True -> options of JitConfig
_INDUCTOR: dict[str, dict[str, Any]] = {
    "max_autotune": {"jit_level": "O2"},
    "triton.cudagraphs": {"exec_mode": "sink"},
}
_NAMES = tuple(field.name for field in dataclasses.fields(JitConfig))


def changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of JitConfig that these keywords of a call mean. `disable` is not among them.

    Raises OptionError (a ValueError) for other keywords and for values without a meaning here.
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in _KEYWORDS:
            if name in _NAMES:
                raise OptionError(
                    f"{name} is an option of JitConfig",
                    expected=f"config=graftjit.JitConfig({name}={describe(value)})",
                    found=f"{name}={describe(value)}",
                )
            known = ("fullgraph", "dynamic", "config", *_KEYWORDS)
            raise OptionError(
                f"there is no keyword {name!r}" + did_you_mean(name, known),
                expected=", ".join(known),
                found=name,
            )
        found |= _KEYWORDS[name](value)
    return found


def disabled(given: Mapping[str, Any]) -> bool:
    """Whether `disable=True` is among the keywords."""
    return _flag("disable", given.get("disable", False))


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionError(
            f"{name}={describe(value)} is not allowed",
            expected="True or False",
            found=describe(value),
        )
    return value


def _one_of(name: str, table: dict[Any, dict[str, Any]], todo: str = "") -> Any:
    def meaning(value: Any) -> dict[str, Any]:
        if isinstance(value, str | None) and value in table:
            return table[value]
        names = [word for word in table if word]
        raise OptionError(
            f"{name}={describe(value)} is not allowed"
            + (did_you_mean(value, names) if isinstance(value, str) else ""),
            expected=" or ".join(map(repr, names)),
            found=describe(value),
            todo=todo,
        )

    return meaning


def _options(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise OptionError(
            "options is not a dict", expected="a dict: name -> value", found=describe(value)
        )
    found: dict[str, Any] = {}
    for name, setting in value.items():
        if name in _NAMES:
            found[name] = setting
        elif name in _INDUCTOR:
            if _flag(name, setting):
                found |= _INDUCTOR[name]
        else:
            known = (*_NAMES, *_INDUCTOR)
            raise OptionError(
                f"options has {describe(name)}, which has no meaning here"
                + (did_you_mean(name, known) if isinstance(name, str) else ""),
                expected=", ".join(known),
                found=describe(name),
                todo="leave it out",
            )
    return found


def _no_effect(_value: Any) -> dict[str, Any]:
    return {}


_KEYWORDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "mode": _one_of("mode", _MODES),
    "backend": _one_of(
        "backend", _BACKENDS, "graftjit generates its kernels itself; others: torch.compile"
    ),
    "options": _options,
    "recompile_limit": lambda value: {} if value is None else {"recompile_limit": value},
    "isolate_recompiles": _no_effect,
    "name": _no_effect,
    "disable": _no_effect,
}
