"""Encodings and error handlers: names of functions, some registered by the program.

In: a call that converts text to bytes or back. Out: nothing, or a break if it could run a function
of the program's.
"""

from __future__ import annotations

import encodings
import encodings.aliases
import pkgutil
from typing import Any

from ..breaks import Break

# Python's own handlers (Doc/library/codecs.rst, "Error Handlers"); `codecs.register_error` adds
# others.
_HANDLERS = frozenset(
    {
        "strict",
        "ignore",
        "replace",
        "xmlcharrefreplace",
        "backslashreplace",
        "namereplace",
        "surrogateescape",
        "surrogatepass",
    }
)
# Modules of Python's own search function, which runs before those of the program.
_ENCODINGS = frozenset(found.name for found in pkgutil.iter_modules(encodings.__path__))
# (class, method or "" for its constructor) -> number of positional arguments before the encoding
_BEFORE: dict[tuple[type, str], int] = {
    (str, "encode"): 0,
    (bytes, "decode"): 0,
    (str, ""): 1,
    (bytes, ""): 1,
}


def refuse_unknown(cls: type, name: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Break if a method or constructor of a constant text gets a name that Python itself lacks.

    `args`, `kwargs`: constants, without the text itself.
    """
    before = _BEFORE.get((cls, name))
    if before is None:
        return
    given = dict(zip(("encoding", "errors"), args[before:], strict=False)) | kwargs
    encoding, errors = given.get("encoding"), given.get("errors")
    if isinstance(encoding, str):
        plain = encodings.normalize_encoding(encoding).lower()
        if encodings.aliases.aliases.get(plain, plain) not in _ENCODINGS:
            raise Break("GB102", f"encoding {encoding!r}, which the program has registered")
    if isinstance(errors, str) and errors not in _HANDLERS:
        raise Break("GB102", f"error handler {errors!r}, which the program has registered")
