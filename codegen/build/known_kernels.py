"""Kernels that this process has compiled before: their machine code is linked again.

In: the text of a graph's unit, of which graphs behind a break or for other sizes have most kernels
again. Out: a unit of the kernels that are new, under names by content; the objects that have the
others; and the names by which the library exports all of them. `codegen.build.cxx` compiles the
whole text if linking fails.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from ...ir.dataclass import dataclass
from . import translation_units

MOST = 256  # kernels whose objects are kept; an object has some of them, and about 5 KB for each
_COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Unit:
    """text     the kernels that are to be compiled, named by content; "" if there are none
    objects  object files with the others
    names    name of each kernel in the library -> name by content
    """

    text: str
    objects: tuple[bytes, ...]
    names: dict[str, str]

    def exports(self) -> list[str]:
        """The linker's flags."""
        return [f"-Wl,--defsym={name}={own}" for name, own in self.names.items()]


class KnownKernels:
    """Name by content -> an object file that has the kernel. The least recently used ones go."""

    def __init__(self) -> None:
        self._objects: OrderedDict[str, bytes] = OrderedDict()

    def unit(self, text: str, flags: Sequence[str]) -> Unit:
        """The unit with this text, compiled with these flags."""
        shared = translation_units.replaced(text, lambda name, kernel: "")
        # Kernels are equal only if all that precedes them is, too.
        before = "\n".join((*flags, shared))
        names, fresh, objects = dict[str, str](), set[str](), dict[int, bytes]()

        def named(name: str, kernel: str) -> str:
            own = names[name] = _name(before, name, kernel)
            found = self._objects.get(own)
            if found is not None:
                self._objects.move_to_end(own)
                objects[id(found)] = found
            if found is not None or own in fresh:
                return ""
            fresh.add(own)
            return re.sub(rf"\b{name}\b", own, kernel)

        made = translation_units.replaced(text, named)
        return Unit(made if fresh else "", tuple(objects.values()), names)

    def keep(self, parts: Iterable[tuple[str, bytes]]) -> None:
        """Keep what was compiled: the text and the object of each part of a unit's text."""
        for text, made in parts:
            for own in translation_units.kernels(text):
                self._objects[own] = made
        while len(self._objects) > MOST:
            self._objects.popitem(last=False)


def _name(before: str, name: str, kernel: str) -> str:
    """A name by content: lines of the program in comments, and the kernel's number, are none."""
    content = re.sub(rf"\b{name}\b", "", _COMMENT.sub("", kernel))
    digest = hashlib.sha256(f"{before}\n{content}".encode()).hexdigest()[:24]
    return f"{re.sub('^k[0-9]+_', '', name)}_{digest}"


KNOWN = KnownKernels()
