"""`Location`: a place in the user's program.

Every node, guard row, break and event has a `Location`, so that reports can name its file, line and
columns. Capture makes it from a code object's position table. `shown` is the form for people: it
names a notebook's cell as the notebook does.
"""

from __future__ import annotations

import linecache
import os
import re
import sys

from .dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A range in a source file. Lines count from 1, columns from 0 (as in `ast`); None: unknown."""

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
    """The display name of a source file.

    A notebook cell has a made-up file name with a process number in it; its display name is
    `In[3]`. Any other path is returned unchanged. `linecache` then has the cell's lines under both
    names.
    """
    if "ipykernel_" not in path and not path.startswith("<ipython-input"):
        return path
    name_of = getattr(getattr(_shell(), "compile", None), "format_code_name", None)
    named = None if name_of is None else name_of(path)
    if named is None:
        return path
    name = str(named[1])
    if path in linecache.cache:
        linecache.cache[name] = linecache.cache[path]
    return name


def shown_text(text: str) -> str:
    """A kernel's text for display: file names of notebook cells become `In[3]`.

    The kernel store hashes the text, so the stored text keeps the made-up file names.
    """
    if "IPython" not in sys.modules:
        return text
    cells = {os.path.basename(path): path for path in [*linecache.cache] if "ipykernel_" in path}
    return re.sub(
        r"\b\d+\.py(?=:\d)", lambda found: shown_file(cells.get(found[0], found[0])), text
    )


def _shell() -> object:
    """IPython's shell of this process; None outside IPython."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()
