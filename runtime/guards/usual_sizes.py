"""Sizes from tensor data that are assumed to be two or more, as long as that is usual.

Torch has rules of its own for dimensions of 0 and of 1, so a walk that does not know such a size
assumes neither (`capture.torch_models.tensor_scalars`). In: a program that checks the assumption and
raises `Unusual`. Out: the program, counted, and a question for a guard: whether captures of this
code object may still assume it. Each call that fails costs what the program did before the check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import Unusual

_SOME = 8  # calls
_OFTEN = 4  # one in so many calls


class UsualSizes:
    """The evidence of one code object; called, whether sizes are usual."""

    def __init__(self) -> None:
        self.__name__ = "sizes_are_usual"
        self.runs = self.failed = 0
        self.assumed = True

    def __call__(self) -> bool:
        return self.assumed

    def counted(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """The program, which adds to the evidence."""

        def run(*inputs: Any) -> Any:
            self.runs += 1
            try:
                return program(*inputs)
            except Unusual:
                self.failed += 1
                if self.failed >= _SOME and self.failed * _OFTEN > self.runs:
                    self.assumed = False
                raise

        run.tells_begun = getattr(program, "tells_begun", False)  # type: ignore[attr-defined]
        return run
