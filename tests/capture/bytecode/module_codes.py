"""The code objects of a module, also those inside of others."""

from __future__ import annotations

import types
from collections.abc import Iterator


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes(const)


def module_codes(module: types.ModuleType) -> list[types.CodeType]:
    assert module.__file__
    with open(module.__file__) as file:
        return list(codes(compile(file.read(), module.__file__, "exec")))
