"""A process that runs Triton kernels in Triton's interpreter: TRITON_INTERPRET counts only before triton's import.

`Worker` (used by tests) starts this file and sends it pickled (kernel, tensors) pairs; back come the tensors as
the kernel left them, or the error's text. The interpreter lacks libdevice: `NumpyLibrary` stands in for it; and
it truncates float32 to bfloat16 where a GPU rounds to nearest: `_round_bfloat16` does it as torch does; it multiplies
matrices of bfloat16 by their bits: `_multiply_bfloat16` by their numbers; it makes an int8 of a bool that is spread over a
tile: `_keep_bools` keeps it; it runs one program after the other: `SideBySide` lets them wait for each other; it has no
PTX: `_approximate` computes two instructions. Assertions count where the kernel says so (`debug`).
"""

from __future__ import annotations

import collections
import contextvars
import inspect
import math
import os
import pickle
import struct
import subprocess
import sys
import threading
import traceback
from typing import Any, BinaryIO

_RENAMED = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
    "atanh": "arctanh", "pow": "power", "atan2": "arctan2",
}  # fmt: skip


class NumpyLibrary:
    """`libdevice.name(a, ...)` on the interpreter's tensors, computed by numpy, broadcast as Triton does."""

    def __getattr__(self, name: str) -> Any:
        import numpy as np

        special = {
            "erf": np.vectorize(math.erf, otypes=[float]),
            "erfc": np.vectorize(math.erfc, otypes=[float]),
            "rsqrt": lambda x: 1 / np.sqrt(x),
        }
        function = special.get(name) or getattr(np, _RENAMED.get(name, name))

        def call(*args: Any) -> Any:
            import triton.language as tl
            from triton.runtime.interpreter import TensorHandle

            first = next(arg for arg in args if hasattr(arg, "handle"))
            kind = first.handle.data.dtype
            arrays = [arg.handle.data if hasattr(arg, "handle") else kind.type(arg) for arg in args]
            with np.errstate(all="ignore"):
                result = np.asarray(function(*arrays)).astype(kind)
            scalar = first.dtype
            shape = [tl.constexpr(size) for size in result.shape]
            blocks = any(hasattr(arg, "handle") and arg.type.is_block() for arg in args)
            kind = tl.block_type(scalar, shape) if blocks else scalar  # a scalar's data has one
            return tl.tensor(TensorHandle(result, scalar), kind)

        return call


class SideBySide:
    """A kernel whose programs wait for each other: each has a thread, and runs until it waits. Then the next one begins,
    and after the last one those that wait go on in turn. `hear` is what the kernel knows as
    `_hear` and `_hear_two`."""

    def __init__(self) -> None:
        self.function: Any = None
        self.left = 0
        self.waiting: collections.deque[threading.Semaphore] = collections.deque()
        self.back = threading.Semaphore(0)
        self.errors: list[BaseException] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        self.left = math.prod(grid)
        return self.function[grid]

    def take(self, function: Any) -> None:
        """Run the programs of this function, as the interpreter made it."""
        self.function, self.body = function, function.rewrite()
        for name in ("__name__", "__globals__", "__annotations__"):  # what the interpreter asks for
            setattr(self, name, getattr(self.body, name))
        self.__signature__ = inspect.signature(self.body)
        function.rewrite = lambda: self

    def __call__(self, **args: Any) -> None:
        def program() -> None:
            try:
                self.body(**args)
            except BaseException as error:
                self.errors.append(error)
            self.back.release()

        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(program,), daemon=True).start()
        self._wait()
        self.left -= 1
        turns = 100 * len(self.waiting)
        while self.left == 0 and self.waiting:
            self.waiting.popleft().release()
            self._wait()
            turns -= 1
            assert turns, "programs wait for ever"

    def _wait(self) -> None:
        self.back.acquire()
        if self.errors:
            raise self.errors[0]

    def hear(self, *places: Any) -> Any:
        import triton.language as tl

        *places, there = places
        while True:
            words = [tl.load(place, mask=there, other=1 << 32) for place in places]
            if all((word.handle.data >> 32).all() for word in words):
                found = tuple(word.to(tl.int32) for word in words)
                return found if len(found) > 1 else found[0]
            mine = threading.Semaphore(0)
            self.waiting.append(mine)
            self.back.release()
            mine.acquire()


def function_of(load: Any, kernel: Any, library: Any) -> Any:
    """What `load` makes of a kernel for the interpreter."""
    if "_tell(" not in kernel.source:
        return load(kernel, libdevice=library)
    found = SideBySide()
    found.take(load(kernel, libdevice=library, _hear=found.hear, _hear_two=found.hear))
    return found


class Worker:
    """The parent's end. Use as a context manager."""

    def __init__(self) -> None:
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=30)

    def run(
        self, kernel: Any, tensors: list[Any], symbols: Any = None, places: Any = None
    ) -> list[Any]:
        """The tensors as the kernel left them; RuntimeError with the worker's traceback if it failed. `symbols`: the
        values of a kernel's symbols by name, where its numbers and its grid are expressions. `places`: the kernel's
        buffers, each (tensor, offset, bytes, dtype), where they lie in tensors of bytes."""
        from graftjit.codegen.triton.arguments import bound

        assert self.process.stdin and self.process.stdout
        kernel = bound(kernel, symbols or {})
        _write(self.process.stdin, (kernel, tensors, places))
        answer = _read(self.process.stdout)
        if isinstance(answer, str):
            raise RuntimeError(f"{answer}\n{kernel.source}")
        return answer


def _write(stream: BinaryIO, message: Any) -> None:
    data = pickle.dumps(message)
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()


def _read(stream: BinaryIO) -> Any:
    (length,) = struct.unpack("<q", stream.read(8))
    return pickle.loads(stream.read(length))


def _part(tensors: list[Any], number: int, at: int, size: int, dtype: Any) -> Any:
    return tensors[number][at : at + size].view(dtype)


def _round_bfloat16() -> None:
    import numpy as np
    import torch
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    plain = InterpreterBuilder.cast_impl

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        if source.dtype.scalar == tl.float32 and target.scalar == tl.bfloat16:
            rounded = torch.tensor(source.data).to(torch.bfloat16).view(torch.int16)
            return TensorHandle(rounded.numpy().view(np.uint16), tl.bfloat16)
        return plain(self, source, target)

    InterpreterBuilder.cast_impl = cast_impl


def _multiply_bfloat16() -> None:
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    plain = InterpreterBuilder.create_dot

    def wide(one: Any) -> Any:
        if one.dtype.scalar != tl.bfloat16:
            return one
        return TensorHandle((one.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return plain(self, wide(a), wide(b), *rest)

    InterpreterBuilder.create_dot = create_dot


def _keep_bools() -> None:
    """The interpreter makes int8 of one bool that is spread over a tile."""
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    plain = InterpreterBuilder.create_splat

    def create_splat(self: Any, *args: Any) -> Any:
        made, given = plain(self, *args), next(arg for arg in args if hasattr(arg, "data"))
        if given.data.dtype != bool:
            return made
        return TensorHandle(made.data.astype(bool), made.dtype)

    InterpreterBuilder.create_splat = create_splat


def _approximate() -> None:
    """The interpreter knows no PTX: the two instructions that helpers of kernels name, as they are on a GPU."""
    from types import SimpleNamespace

    import numpy as np
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    functions = {"ex2.approx.ftz.f32": np.exp2, "rcp.approx.ftz.f32": np.reciprocal}

    def create_inline_asm(self: Any, text: Any, constraints: Any, values: Any, *rest: Any) -> Any:
        (value,) = values
        with np.errstate(all="ignore"):
            found = functions[str(text).split()[0]](value.data.astype(np.float64))
            found = np.where(np.abs(found) < 2.0**-126, found * 0, found).astype(np.float32)
        handle = TensorHandle(found, value.dtype.scalar)
        return SimpleNamespace(get_result=lambda number: handle)

    InterpreterBuilder.create_inline_asm = create_inline_asm


def _assert(on: bool) -> None:
    """Whether assertions of kernels count: a launch cannot say it to the interpreter, whose options are its own."""
    from triton.runtime.interpreter import interpreter_builder

    object.__setattr__(interpreter_builder.options, "debug", on)
    object.__setattr__(interpreter_builder.options, "sanitize_overflow", False)


def _serve() -> None:
    import numpy as np

    from graftjit.codegen.triton import renderer as triton

    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what kernels print must not get between the messages
    np.seterr(all="ignore")
    _round_bfloat16()
    _multiply_bfloat16()
    _keep_bools()
    _approximate()
    while True:
        try:
            kernel, tensors, places = _read(sys.stdin.buffer)
        except struct.error:
            return
        try:
            _assert(kernel.debug)
            launched = tensors if places is None else [_part(tensors, *place) for place in places]
            triton.launch(kernel, launched, function_of(triton.load, kernel, NumpyLibrary()))
            _write(stream, tensors)
        except Exception:
            _write(stream, traceback.format_exc())


if __name__ == "__main__":
    _serve()
