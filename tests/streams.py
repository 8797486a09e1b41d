"""A stream of a program's own kind, to which `print` is a break (GB103): tests use it as one."""

from __future__ import annotations

import io
from typing import TextIO


class OwnStream(io.StringIO):
    """Keeps what is written, and passes it on to another stream, if there is one."""

    def __init__(self, to: TextIO | None = None) -> None:
        super().__init__()
        self.to = to

    def write(self, text: str) -> int:
        if self.to is not None:
            self.to.write(text)
        return super().write(text)
