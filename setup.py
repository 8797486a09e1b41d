"""The native extension. It needs no torch: only CPython's headers and a C++20 compiler."""

import runpy
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("runtime/native")
MARK = runpy.run_path("runtime/native_sources.py")["mark"]()
FLAGS = ["-std=c++20", "-O2", "-fvisibility=hidden", "-Wno-missing-field-initializers"]

setup(
    ext_modules=[
        Extension(
            "graftjit.runtime._native",
            sources=sorted(str(path) for path in NATIVE.glob("*.cpp")),
            depends=["runtime/native_sources.py", *sorted(map(str, NATIVE.glob("*.h")))],
            define_macros=[("GRAFTJIT_SOURCES", f'"{MARK}"')],
            extra_compile_args=FLAGS,
            libraries=["dl"],
            language="c++",
        )
    ]
)
