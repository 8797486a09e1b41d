"""The modules that only misses and rare keywords need, each imported when its name is first read
here.

`import graftjit` imports this package. With what they import, these modules are 180 more. Already
the guards' two would make the collector walk all of torch's objects during the import (0.1 s).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .. import torch_keywords
    from ..capture import capture
    from ..capture.bytecode import branches
    from ..capture.emit import ahead, resume
    from ..codegen import backend
    from ..ir.ops import checks
    from ..runtime.guards import compiler, mirror
    from . import transforms

__all__ = [
    "ahead",
    "backend",
    "branches",
    "capture",
    "checks",
    "compiler",
    "mirror",
    "resume",
    "torch_keywords",
    "transforms",
]

_PLACES = {
    "ahead": "..capture.emit.ahead",
    "backend": "..codegen.backend",
    "branches": "..capture.bytecode.branches",
    "capture": "..capture.capture",
    "checks": "..ir.ops.checks",
    "compiler": "..runtime.guards.compiler",
    "mirror": "..runtime.guards.mirror",
    "resume": "..capture.emit.resume",
    "torch_keywords": "..torch_keywords",
    "transforms": ".transforms",
}

# Not for type checkers, which report names that are not imported above.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> ModuleType:
        if name not in _PLACES:
            raise AttributeError(name)
        module = globals()[name] = import_module(_PLACES[name], __package__)
        return module
