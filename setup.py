"""The native extension. It needs no torch: only CPython's headers and a C++20 compiler."""

import compileall
import runpy
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("runtime/native")
MARK = runpy.run_path("runtime/native_sources.py")["mark"]()
ROOMS = ("graftjit", "capture", "codegen", "ir", "runtime")
FLAGS = ["-std=c++20", "-O2", "-fvisibility=hidden", "-Wno-missing-field-initializers"]


class Built(build_ext):
    """In a checkout the modules are compiled to bytecode, too, as an installer does: without it a first call takes
    0.2 s more, and each one does where Python is told to write none."""

    def run(self) -> None:
        super().run()
        if self.inplace or self.editable_mode:
            for room in ROOMS:
                compileall.compile_dir(room, maxlevels=0, quiet=1)


setup(
    cmdclass={"build_ext": Built},
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
    ],
)
