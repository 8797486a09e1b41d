"""Where in the user's program something happened.

A `Location` is attached to every node, guard row, break and event, so that whatever graftjit did can be
told by file, line and columns. Made by capture from a code object's position table; read by everyone.
People read `shown`, which names a notebook's cell as the notebook does.
"""

from __future__ import annotations

import linecache
import os
import re
import sys

from .dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A range in a source file. Lines count from 1, columns from 0 (as `ast` does); None where unknown."""

    file: str
    line: int | None
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None
    function: str = "?"

    @property
    def shown(self) -> str:
        return shown_file(self.file)

    def __str__(self) -> str:
        return f"{self.shown}:{self.line} in {self.function}"


def shown_file(path: str) -> str:
    """The name of a source file for people: `In[3]` for a cell of a notebook, whose file has a made-up name with a
    process number in it; any other as it is. The cell's lines can be read by `linecache` under both names."""
    if "ipykernel_" not in path and not path.startswith("<ipython-input"):
        return path
    name_of = getattr(getattr(_shell(), "compile", None), "format_code_name", None)
    told = None if name_of is None else name_of(path)
    if told is None:
        return path
    name = str(told[1])
    if path in linecache.cache:
        linecache.cache[name] = linecache.cache[path]
    return name


def shown_text(text: str) -> str:
    """A kernel's text for people. Comments in it name the program's files, and it is stored under what it says: so the cells
    of a notebook have their made-up names there, and their numbers here."""
    if "IPython" not in sys.modules:
        return text
    cells = {os.path.basename(path): path for path in [*linecache.cache] if "ipykernel_" in path}
    return re.sub(
        r"\b\d+\.py(?=:\d)", lambda found: shown_file(cells.get(found[0], found[0])), text
    )


def _shell() -> object:
    """IPython's shell of this process; None outside of one."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()
