"""One copy of each module of graftjit, whatever the program does to `sys.modules`.

A program may put `sys.modules` back as it was (`mock.patch.dict`, tests that import a module afresh). Modules of graftjit that
were imported meanwhile are then gone, and a second import would register each table row twice. `KEEPER`, a finder of
`sys.meta_path`, gives the first copy again. It watches from the import of this file on, which is one of the first.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_NAME = __name__.partition(".")[0]


class Keeper(MetaPathFinder, Loader):
    """Remembers the modules of a package when they are imported, and finds them when they are gone."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._kept: dict[str, tuple[ModuleType, ModuleSpec]] = {}
        self._begun: list[str] = []  # names whose import this finder saw and whose end it did not

    def install(self) -> None:
        """Watch imports from now on."""
        names = [name for name in list(sys.modules) if self._owns(name)]
        self._begun += [name for name in names if name not in self._begun]
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def remember(self) -> None:
        """Keep the modules whose import has ended. One that fails is in `sys.modules` no more."""
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
            if other != name:  # the import system loads a module anew that a finder has put there
                sys.modules.setdefault(other, module)
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The first copy."""
        return self._kept[spec.name][0]

    def exec_module(self, module: ModuleType) -> None:
        """Its code has run: only the spec is put back, which the import system has replaced."""
        module.__spec__ = self._kept[module.__name__][1]


KEEPER = Keeper(_NAME)
KEEPER.install()
