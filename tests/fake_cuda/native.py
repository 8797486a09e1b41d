"""The parts in C++, each compiled once (g++, kept by content beside the kernel store) and loaded by ctypes."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent


def compiler() -> str | None:
    """The C++ compiler, where there is one."""
    return shutil.which(os.environ.get("CXX", "g++"))


@functools.cache
def library(name: str, torch_parts: bool = False) -> str:
    """The path of the shared library of one of the .cpp files in this folder."""
    source = HERE / name
    found = compiler()
    assert found is not None
    command = [found, "-O1", "-shared", "-fPIC", "-std=c++20", "-w", str(HERE / name)]
    if torch_parts:
        root = Path(torch.__file__).parent
        command += [
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
            f"-I{root / 'include'}", f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu",
        ]  # fmt: skip
    text = "\n".join([torch.__version__, *command, source.read_text()])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = Path(os.environ["GRAFTJIT_CACHE_DIR"]) / "fake_cuda"
    target = folder / f"{source.stem}-{digest}.so"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(dir=folder, suffix=".so")
        os.close(handle)
        subprocess.run([*command, "-o", made], check=True, capture_output=True)
        os.replace(made, target)
    return str(target)


@functools.cache
def guard() -> ctypes.CDLL:
    """guard.cpp, registered with torch: from then on for good, so before autograd's first backward, which
    makes a thread for each device that it finds."""
    loaded = ctypes.CDLL(library("guard.cpp", torch_parts=True))
    loaded.fake_cuda_stream.restype = ctypes.c_int64
    loaded.fake_cuda_set_stream.argtypes = [ctypes.c_int, ctypes.c_int64]
    assert loaded.fake_cuda_register()
    return loaded
