"""The native extension. It needs no torch: only CPython's headers and a C++20 compiler."""

from pathlib import Path

from setuptools import Extension, setup

SOURCES = sorted(str(path) for path in Path("runtime/native").glob("*.cpp"))

setup(
    ext_modules=[
        Extension(
            "graftjit.runtime._native",
            sources=SOURCES,
            depends=sorted(str(path) for path in Path("runtime/native").glob("*.h")),
            extra_compile_args=["-std=c++20", "-O2", "-fvisibility=hidden", "-Wno-missing-field-initializers"],
            libraries=["dl"],
            language="c++",
        )
    ]
)
