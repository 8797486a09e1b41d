"""The native extension, and the kernels that are compiled beforehand. They need no torch: only CPython's headers and a C++20 compiler."""

import compileall
import runpy
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("runtime/native")
MARK = runpy.run_path("runtime/native_sources.py")["mark"]()
FOLDERS = ("graftjit", "capture", "codegen", "ir", "runtime")
# Every folder with an __init__.py, by its name: `graftjit.ir.graph` is ir/graph (pyproject.toml has the five folders at the top).
PACKAGES = [
    ".".join(init.parent.parts if folder == "graftjit" else ("graftjit", *init.parent.parts))
    for folder in FOLDERS
    for init in sorted(Path(folder).rglob("__init__.py"))
]
KERNELS = runpy.run_path("codegen/build/flags.py")
FLAGS = ["-std=c++20", "-O2", "-fvisibility=hidden", "-Wno-missing-field-initializers"]


class Built(build_ext):
    """In a checkout the modules are compiled to bytecode, too, as an installer does: without it a first call takes
    0.2 s more, and each one does where Python is told to write none."""

    def build_extension(self, ext: Extension) -> None:
        # the libraries of kernels have sources in common
        together, self.build_temp = self.build_temp, f"{self.build_temp}/{ext.name}"
        try:
            super().build_extension(ext)
        finally:
            self.build_temp = together

    def run(self) -> None:
        super().run()
        if self.inplace or self.editable_mode:
            for folder in FOLDERS:
                compileall.compile_dir(folder, quiet=1)


def ready(one: Any) -> Extension:
    """A plain library, though it is found and named like an extension. Where it cannot be made, kernels are built when
    they are needed: see codegen/kernels/libraries.py."""
    text = KERNELS["text_of"]
    marks = [
        (f"{name.upper()}_MARK", f"{KERNELS['mark'](text(f'{name}.h'), one)}u")
        for name in one.kernels
    ]
    return Extension(
        f"graftjit.codegen.kernels.{one.name}",
        sources=[f"codegen/kernels/prebuilt/{name}.cpp" for name in one.kernels],
        depends=[
            "codegen/build/flags.py",
            *(f"codegen/kernels/{name}.h" for name in ("common", "lanes", *one.kernels)),
        ],
        define_macros=marks,
        # Not given to the linker: OpenMP is torch's, a second one in a process is in its way.
        extra_compile_args=[
            *(f for f in one.flags if f not in ("-shared", "-x", "c++")),
            "-g0",
        ],
        language="c++",
        optional=True,
    )


setup(
    packages=PACKAGES,
    cmdclass={"build_ext": Built},
    ext_modules=[
        Extension(
            "graftjit.runtime._native",
            sources=sorted(str(path) for path in NATIVE.rglob("*.cpp")),
            depends=["runtime/native_sources.py", *sorted(map(str, NATIVE.rglob("*.h")))],
            define_macros=[("GRAFTJIT_SOURCES", f'"{MARK}"')],
            include_dirs=[str(NATIVE)],
            extra_compile_args=FLAGS,
            libraries=["dl"],
            language="c++",
        ),
        *(map(ready, KERNELS["READY"]) if KERNELS["ready_here"]() else ()),
    ],
)
