"""The context: GRAPH_MODE or PYNATIVE_MODE, the device, and the default configuration of `jit`.

In: `set_context(mode=..., device_target=..., jit_config=...)` from any thread. Out:
`get_context(name)`, and the frozen `Context` that `nn.Cell` and `jit` read. There is one context
per process. It is replaced as a whole under a lock, so that a reader sees either the old or the new
one. Settings of static-graph programs without a counterpart are accepted and stored, with one
warning each. Any other name or value is refused, with the nearest valid one.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .ir.dataclass import dataclass
from .runtime.errors import OptionError, did_you_mean
from .runtime.process.options import JitConfig
from .runtime.process.session import SESSION

GRAPH_MODE = 0
PYNATIVE_MODE = 1

_MODES = {GRAPH_MODE: "GRAPH_MODE", PYNATIVE_MODE: "PYNATIVE_MODE"}
_DEVICES = {"CPU": "cpu", "GPU": "cuda"}

# Settings of static-graph systems without a counterpart here.
_WITHOUT_EFFECT = (
    "ascend_config",
    "check_bprop",
    "deterministic",
    "enable_compile_cache",
    "enable_graph_kernel",
    "env_config_path",
    "graph_kernel_flags",
    "grad_for_scalar",
    "inter_op_parallel_num",
    "max_call_depth",
    "max_device_memory",
    "memory_optimize_level",
    "mempool_block_size",
    "print_file_path",
    "pynative_synchronize",
    "reserve_class_name_in_scope",
    "runtime_num_threads",
    "save_graphs",
    "save_graphs_path",
)


@dataclass(frozen=True, slots=True)
class Context:
    """mode: GRAPH_MODE (0) compiles every `nn.Cell.construct`, PYNATIVE_MODE (1) only what is
    jitted. device_target: "CPU" or "GPU", the device of `Tensor` and of the layers of `nn`;
    device_id: its index. jit_config: the configuration of `jit` if none is given."""

    mode: int = PYNATIVE_MODE
    device_target: str = "CPU"
    device_id: int = 0
    jit_config: JitConfig = dataclasses.field(default_factory=JitConfig)

    @property
    def device(self) -> torch.device | None:
        """The device; None for torch's own default."""
        if self.device_target == "CPU":
            return None
        return torch.device(_DEVICES[self.device_target], self.device_id)


class _Holder:
    """The context of this process, and the values of settings without effect."""

    def __init__(self) -> None:
        self.current = Context()
        self.without_effect: dict[str, Any] = {}
        self.lock = threading.Lock()


_HOLDER = _Holder()


def current_context() -> Context:
    """The current context, as one frozen object."""
    return _HOLDER.current


def set_context(**settings: Any) -> None:
    """Change settings of the context: `mode`, `device_target`, `device_id`, `jit_config` (a
    `JitConfig` or a dict of its options), or one option of `JitConfig` by its own name
    (`jit_level="O0"`).

    Raises OptionError (a ValueError) for an unknown name or a value that is not allowed; then
    nothing is changed.
    """
    with _HOLDER.lock:
        context = _HOLDER.current
        without_effect: dict[str, Any] = {}
        for name, value in settings.items():
            if name in _CHECKS:
                context = dataclasses.replace(context, **{name: _CHECKS[name](value)})
            elif name in _JIT_OPTIONS:
                config = context.jit_config.replace(**{name: value})
                context = dataclasses.replace(context, jit_config=config)
            elif name in _WITHOUT_EFFECT:
                without_effect[name] = value
            else:
                raise _unknown(name)
        _check_device(context)
        _HOLDER.current = context
        _HOLDER.without_effect.update(without_effect)
    for name in without_effect:
        SESSION.warn_once("WN605", f"set_context({name}=...) has no effect in graftjit")


def get_context(name: str) -> Any:
    """The value of a setting. Raises OptionError (a ValueError) for an unknown name."""
    context = _HOLDER.current
    if name in _CHECKS:
        return getattr(context, name)
    if name in _JIT_OPTIONS:
        return getattr(context.jit_config, name)
    if name in _WITHOUT_EFFECT:
        return _HOLDER.without_effect.get(name)
    raise _unknown(name)


def reset_context() -> None:
    """Restore the context of import time."""
    with _HOLDER.lock:
        _HOLDER.current = Context()
        _HOLDER.without_effect = {}


def _unknown(name: str) -> OptionError:
    known = [*_CHECKS, *_JIT_OPTIONS]
    return OptionError(
        f"the context has no setting {name!r}" + did_you_mean(name, [*known, *_WITHOUT_EFFECT]),
        expected=", ".join(known),
        found=repr(name),
    )


def _mode(value: Any) -> int:
    if type(value) is int and value in _MODES:
        return value
    hint = did_you_mean(value, _MODES.values()) if isinstance(value, str) else ""
    raise OptionError(
        f"mode={value!r} is not allowed{hint}",
        expected="graftjit.GRAPH_MODE (0) or graftjit.PYNATIVE_MODE (1)",
        found=repr(value),
    )


def _device_target(value: Any) -> str:
    if isinstance(value, str) and value in _DEVICES:
        return value
    raise OptionError(
        f"device_target={value!r} is not allowed"
        + (did_you_mean(value.upper(), _DEVICES) if isinstance(value, str) else ""),
        expected=" or ".join(repr(device) for device in _DEVICES),
        found=repr(value),
    )


def _device_id(value: Any) -> int:
    if type(value) is int and value >= 0:
        return value
    raise OptionError(
        f"device_id={value!r} is not allowed", expected="a number from 0", found=repr(value)
    )


def _jit_config(value: Any) -> JitConfig:
    if isinstance(value, JitConfig):
        return value
    if isinstance(value, Mapping):
        return JitConfig(**value)
    raise OptionError(
        f"jit_config={value!r} is not allowed",
        expected="a JitConfig, or a dict of its options",
        found=type(value).__name__,
    )


def _check_device(context: Context) -> None:
    if context.device_target != "GPU":
        return
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if context.device_id >= count:
        raise OptionError(
            f"device_target='GPU' with device_id={context.device_id}: torch sees {count} such"
            f" devices",
            expected="device_target='CPU'" if count == 0 else f"a device_id below {count}",
            found=f"GPU {context.device_id}",
            todo="`python -m graftjit doctor` says what torch and the driver see",
        )


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "mode": _mode,
    "device_target": _device_target,
    "device_id": _device_id,
    "jit_config": _jit_config,
}
_JIT_OPTIONS = tuple(field.name for field in dataclasses.fields(JitConfig))
