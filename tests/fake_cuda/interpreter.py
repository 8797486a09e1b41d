"""The process in which the fake devices' kernels run: Triton's interpreter over the shared memory.

`Interpreter.run` (called by the driver's launches) sends a kernel, its pointers with the blocks in which they lie,
and its numbers; the kernel writes where the pointers point. An access outside of the blocks is an error, as are
those that the kernel raises itself (`device_assert`). The other end is this file, run with TRITON_INTERPRET=1.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pickle
import struct
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent


class Text(NamedTuple):
    """Of a `codegen.triton.renderer.TritonKernel` what a launch needs: it is what the fake compiler calls a cubin."""

    name: str
    source: str
    arguments: tuple[tuple[str, str], ...]
    constants: Mapping[str, int]


class Launch(NamedTuple):
    """`pointers`: (address, start and size of its block) of each; `programs`: along three axes."""

    kernel: Text
    pointers: Sequence[tuple[int, int, int]]
    numbers: Sequence[int | float]
    programs: tuple[int, int, int]


class Interpreter:
    """The parent's end."""

    def __init__(self, descriptor: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(descriptor)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TRITON_INTERPRET": "1"},
            pass_fds=[descriptor],
        )
        atexit.register(self.close)

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=30)

    def run(self, launch: Launch) -> str:
        """The error's text, "" where there was none."""
        assert self.process.stdin and self.process.stdout
        # Plain tuples: this file is another module over there.
        _write(self.process.stdin, (tuple(launch.kernel), *launch[1:]))
        return str(_read(self.process.stdout))


def _write(stream: BinaryIO, message: Any) -> None:
    data = pickle.dumps(message)
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()


def _read(stream: BinaryIO) -> Any:
    (length,) = struct.unpack("<q", stream.read(8))
    return pickle.loads(stream.read(length))


class _Outside(Exception):
    """A kernel reached for memory that it was not given."""


class _Bounds:
    """The blocks of the launch under way, checked at each load, store and atomic."""

    def __init__(self) -> None:
        self.blocks: list[tuple[int, int]] = []

    def install(self) -> None:
        from triton.runtime.interpreter import InterpreterBuilder

        for name in ("create_masked_load", "create_masked_store", "create_atomic_rmw"):
            setattr(
                InterpreterBuilder, name, self._checked(getattr(InterpreterBuilder, name), name)
            )

    def _checked(self, plain: Any, name: str) -> Any:
        places = {"create_masked_load": (0, 1), "create_masked_store": (0, 2)}.get(name, (1, 3))

        def access(builder: Any, *args: Any, **kwargs: Any) -> Any:
            pointers, mask = (args[place] for place in places)
            self._check(pointers, mask)
            return plain(builder, *args, **kwargs)

        return access

    def _check(self, pointers: Any, mask: Any) -> None:
        import numpy as np

        addresses = pointers.data if mask is None else pointers.data[mask.data.astype(bool)]
        inside = np.zeros(addresses.shape, dtype=bool)
        for start, size in self.blocks:
            inside |= (addresses >= start) & (addresses < start + size)
        if not inside.all():
            raise _Outside(f"an illegal memory access at {int(addresses[~inside].flat[0]):#x}")


def _load(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Server:
    """What is loaded once, and the functions of the kernels met so far."""

    def __init__(self) -> None:
        import numpy as np

        self.compile = _load("triton_compile", ROOT / "codegen" / "triton" / "compiler.py")
        worker = _load("worker", ROOT / "tests" / "codegen" / "triton" / "worker.py")
        np.seterr(all="ignore")
        worker._round_bfloat16()
        worker._approximate()
        self.library, self.function_of = worker.NumpyLibrary(), worker.function_of
        self.bounds = _Bounds()
        self.bounds.install()
        self.functions: dict[str, Any] = {}

    def run(self, launch: Launch) -> None:
        """Run one kernel over the shared memory."""
        kernel = launch.kernel
        function = self.functions.get(kernel.source)
        if function is None:
            function = self.function_of(self.compile.load, kernel, self.library)
            self.functions[kernel.source] = function
        self.bounds.blocks = sorted({block[1:] for block in launch.pointers})
        kinds = [kind for _name, kind in kernel.arguments if kind.startswith("*")]
        tensors = [
            self.tensor(block[0], kind) for block, kind in zip(launch.pointers, kinds, strict=True)
        ]
        kinds = [kind for _name, kind in kernel.arguments if kind[0] != "*" and kind != "constexpr"]
        numbers = [
            self.number(value, kind) for value, kind in zip(launch.numbers, kinds, strict=True)
        ]
        function[launch.programs](*tensors, *numbers, **kernel.constants)

    def tensor(self, address: int, kind: str) -> Any:
        """One element at an address: the interpreter takes the address alone."""
        import ctypes

        import torch

        names = {"*i1": "bool", "*u8": "uint8", "*fp16": "float16", "*bf16": "bfloat16"}
        names |= {f"*fp{bits}": f"float{bits}" for bits in (32, 64)}
        names |= {f"*i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
        dtype = getattr(torch, names[kind])
        held = (ctypes.c_char * dtype.itemsize).from_address(address)
        return torch.frombuffer(held, dtype=dtype)

    def number(self, value: int | float, kind: str) -> Any:
        """A number of the type that the kernel declares: of a plain one the interpreter takes the narrowest."""
        import numpy as np
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        name = {"i64": "int64", "i32": "int32", "fp64": "float64", "fp32": "float32"}[kind]
        scalar = getattr(tl, name)
        return tl.tensor(TensorHandle(np.array([value], dtype=name), scalar), scalar)


def _serve() -> None:
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what kernels print must not get between the messages
    memory = _load("memory", Path(__file__).with_name("memory.py"))
    memory.map_memory(int(sys.argv[1]))
    server = _Server()
    while True:
        try:
            kernel, *rest = _read(sys.stdin.buffer)
        except struct.error:
            return
        try:
            server.run(Launch(Text(*kernel), *rest))
            _write(stream, "")
        except Exception:
            _write(stream, traceback.format_exc())


if __name__ == "__main__":
    _serve()
