"""The native extension. It needs no torch: only CPython's headers and a C++20 compiler."""

from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("runtime/native")
FLAGS = ["-std=c++20", "-O2", "-fvisibility=hidden", "-Wno-missing-field-initializers"]

setup(
    ext_modules=[
        Extension(
            "graftjit.runtime._native",
            sources=sorted(str(path) for path in NATIVE.glob("*.cpp")),
            depends=sorted(str(path) for path in NATIVE.glob("*.h")),
            extra_compile_args=FLAGS,
            libraries=["dl"],
            language="c++",
        )
    ]
)
