"""GPU launches in a program: their checks, lowered form, and mirror.

runtime/executor/lower.py calls this module. Programs without such launches neither load the driver
nor import its module.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...ir.symbolic.expr import Expr, apply, is_symbolic, kind_of
from ..errors import BuildError
from ..program.program import MAX_PROGRAMS, DeviceLaunch, ProgramSpec
from ..program.registers import Registers

MAX_PARAMETERS = 1024  # as in runtime/native/cuda/launch.h
ALIGNMENT = 16  # bytes; as in runtime/native/cuda/launch.h
MAX_DEVICES = 64  # as in runtime/native/cuda/driver.h
_LIMITS = {"i": 2**31, "q": 2**63}
_KINDS = {"i": "int", "q": "int", "f": "float", "d": "float"}  # letter -> kind of the number


def _driver() -> Any:
    # loaded for programs with launches on GPUs only
    from .driver import DRIVER

    return DRIVER


def prepare(spec: ProgramSpec) -> None:
    """Reject invalid launches, and prepare kernels on their devices. Raises BuildError, and what
    loading a kernel raises."""
    launches = [step for step in spec.steps if isinstance(step, DeviceLaunch)]
    if not launches:
        return
    driver = _driver()
    for step in launches:
        _check(step)
        assert step.device.index is not None
        driver.prepare(step.function, step.kernel, step.shared, step.device.index)


def _check(step: DeviceLaunch) -> None:
    device, kernel = step.device, step.kernel
    if device.type != "cuda" or device.index is None or device.index >= MAX_DEVICES:
        raise BuildError(
            f"the kernel {kernel} is launched on a device without CUDA", found=str(device)
        )
    if not isinstance(step.programs, Expr):
        check_programs(kernel, step.programs)
    if not 0 < step.threads <= 1024:
        raise BuildError(f"the kernel {kernel} has {step.threads} threads", expected="1 to 1024")
    wrong = len(step.kinds) != len(step.numbers) or any(
        _KINDS.get(letter) is None
        or (_KINDS[letter] == "int" and kind_of(number) == "float")
        or (letter in _LIMITS and type(number) is int and abs(number) >= _LIMITS[letter])
        for letter, number in zip(step.kinds, step.numbers, strict=False)
    )
    if wrong:
        raise BuildError(
            f"the kernel {kernel} was given numbers of other kinds than it takes",
            found=f"{step.kinds!r} for {step.numbers}",
        )
    count = len(step.slots) + len(step.numbers) + step.hidden
    if count > MAX_PARAMETERS:
        raise BuildError(
            f"the kernel {kernel} has {count} parameters", expected=f"at most {MAX_PARAMETERS}"
        )


def check_programs(kernel: str, programs: int) -> None:
    if programs > MAX_PROGRAMS:
        raise BuildError(
            f"the kernel {kernel} needs more programs than a launch takes",
            expected=f"at most {MAX_PROGRAMS}",
            found=str(programs),
        )


def lowered(step: DeviceLaunch, numbers: Registers) -> tuple[str, tuple[Any, ...]]:
    """The tuple that runtime/native/cuda/launch.cpp reads."""
    symbolic = is_symbolic(step.programs)
    grid = (0, numbers.of(step.programs)) if symbolic else (max(0, step.programs), -1)
    registers = tuple(
        numbers.of(_real(number) if _KINDS[letter] == "float" else number)
        for letter, number in zip(step.kinds, step.numbers, strict=True)
    )
    return "device", (
        step.kernel,
        step.function,
        step.device.index,
        *grid,
        step.threads,
        step.shared,
        step.hidden,
        step.slots,
        step.writes,
        registers,
        step.kinds,
        step.keep,
        step.aligned,
        step.general,
    )


def _real(number: Any) -> Any:
    if isinstance(number, Expr):
        return number if number.kind == "float" else apply("float", number)
    return float(number)


def mirrored(step: DeviceLaunch) -> Callable[[list[Any], Any], None]:
    """The launch through ctypes."""
    driver = _driver()
    others: list[DeviceLaunch] = []  # the launch of the general kernel, after its first use

    def run(slots: list[Any], arena: Any) -> None:
        values = [slots[slot] for slot in step.slots]
        pointers = [value if isinstance(value, int) else value.data_ptr() for value in values]
        parameters = [struct.pack("Q", pointer) for pointer in pointers]
        parameters += [
            _packed(step.kernel, *pair) for pair in zip(step.kinds, step.numbers, strict=True)
        ]
        parameters += [bytes(8)] * step.hidden
        if step.programs > MAX_PROGRAMS:
            raise RuntimeError(
                f"graftjit: the kernel {step.kernel} needs {step.programs} programs, and a launch"
                f" takes {MAX_PROGRAMS}"
            )
        if step.programs > 0 and not any(pointers[at] % ALIGNMENT for at in step.aligned):
            driver.launch(step, parameters)
        elif step.programs > 0:
            if not others:
                function, shared = step.general()
                others.append(replace(step, function=function, shared=shared))
            driver.launch(replace(others[0], programs=step.programs), parameters)

    return run


def _packed(kernel: str, letter: str, number: Any) -> bytes:
    if letter == "f":
        return _float32(float(number))
    try:
        return struct.pack(letter, number)
    except struct.error:
        raise OverflowError(
            f"graftjit: a number of the kernel {kernel} is beyond 32 bits"
        ) from None


def _float32(number: float) -> bytes:
    """Round as C does: too large values become infinity, where `struct` raises."""
    try:
        return struct.pack("f", number)
    except OverflowError:
        return struct.pack("f", float("inf") if number > 0 else float("-inf"))
