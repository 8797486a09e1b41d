"""Keeps one copy of each module of graftjit, even if the program changes `sys.modules`.

A program may restore an earlier `sys.modules` (`mock.patch.dict`, tests that import a module
again). This removes modules of graftjit that were imported meanwhile, and a second import would
register each table row twice. `KEEPER`, a finder in `sys.meta_path`, returns the first copy
instead. It observes imports from the import of this file on, which is one of the first.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_NAME = __name__.partition(".")[0]


class Keeper(MetaPathFinder, Loader):
    """Stores the imported modules of a package, and finds them after their removal."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._kept: dict[str, tuple[ModuleType, ModuleSpec]] = {}
        # names whose import has begun and was not yet seen to have ended
        self._begun: list[str] = []

    def install(self) -> None:
        """Observe imports from now on."""
        names = [name for name in list(sys.modules) if self._owns(name)]
        self._begun += [name for name in names if name not in self._begun]
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def remember(self) -> None:
        """Store the modules whose import has ended. A failed import leaves no module."""
        left = []
        for name in self._begun:
            module = sys.modules.get(name)
            spec = getattr(module, "__spec__", None)
            if getattr(spec, "_initializing", False):
                left.append(name)
            elif module is not None and spec is not None:
                self._kept[name] = (module, spec)
        self._begun = left

    def _owns(self, name: str) -> bool:
        return name == self._package or name.startswith(self._package + ".")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """A spec that loads the first copy of the module, or None."""
        if not self._owns(name):
            return None
        self.remember()
        if name not in self._kept or target is not None:  # `importlib.reload` has a target
            self._begun.append(name)
            return None
        for other, (module, _) in self._kept.items():
            # If a finder adds `name` itself, importlib loads it again by the spec of that module.
            if other != name:
                sys.modules.setdefault(other, module)
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The first copy."""
        return self._kept[spec.name][0]

    def exec_module(self, module: ModuleType) -> None:
        """Restore the spec, which the import system has replaced. The module's code has already
        run."""
        module.__spec__ = self._kept[module.__name__][1]


KEEPER = Keeper(_NAME)
KEEPER.install()
