"""Argument parser and terminal helpers of the command line.

`Parser` is argparse with suggestions for misspelt commands, options and choices. `near_file` does
the same for file names; `size` formats bytes.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from ..runtime.errors import did_you_mean

_WRONG = (
    re.compile(r"invalid choice: '([^']*)'"),
    re.compile(r"unrecognized arguments: (.*)"),
    re.compile(r"ambiguous option: (\S*)"),
)


class Parser(argparse.ArgumentParser):
    """argparse with suggestions. `below`: the parsers of its commands, by name."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)
        self.below: dict[str, Parser] = {}
        self._typed: tuple[str, ...] = ()

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._typed = tuple(args or ())
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and what may have been meant; exit status 2."""
        owner = next((self.below[word] for word in self._typed if word in self.below), self)
        wrong = [
            word for form in _WRONG for found in form.findall(message) for word in found.split()
        ]
        known = [*owner.words(), *(self.below if owner is self else ())]
        hint = next(filter(None, (did_you_mean(word.split("=")[0], known) for word in wrong)), "")
        if wrong and hint:
            message = f"{wrong[0]!r} is not a known command or option"
        self.exit(2, f"{owner.prog}: {message}{hint}\nTry '{owner.prog} --help'.\n")

    def words(self) -> Iterable[str]:
        """Its options and choices."""
        for action in self._actions:
            yield from action.option_strings
            if action.choices is not None and not self.below:
                yield from map(str, action.choices)


def near_file(name: str) -> str:
    """`"; did you mean 'x'?"` if the folder has a file with a similar name, else ""."""
    path = Path(name)
    try:
        names = os.listdir(path.parent)
    except OSError:
        return f"; there is no folder {path.parent} either"
    hint = did_you_mean(path.name, names)
    near = re.fullmatch(r"; did you mean '(.*)'\?", hint)
    return f"; did you mean '{path.parent / near[1]}'?" if near else ""


def size(count: int) -> str:
    """1536 -> "1.5 KiB"."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def sure(question: str) -> bool:
    """Ask on a terminal. Without one, return True: a script has decided already."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return False
