"""Pure functions of the standard library: regular expressions, json, tables of characters.

In: a call of one of them, with constants. Out: its Value, computed at capture.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from ..breaks import Break
from ..data_model.polyfills import walk_as_written
from ..values.containers import NotConstant, as_constants, fold
from ..values.registry import BUILTINS, Args, Kwargs
from ..values.value import Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


def _pure(real: Any) -> Any:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        try:
            plain, rest = as_constants(m, args, kwargs)
        except NotConstant:
            raise Break("GB121", f"{real.__name__}() of values that are not constants") from None
        return fold(lambda: real(*plain, **rest))

    return model


_PURE = (
    str.maketrans,
    bytes.maketrans,
    re.sub,
    re.subn,
    re.split,
    re.findall,
    re.escape,
    json.dumps,
    json.loads,
)
for _real in _PURE:
    BUILTINS[_real] = _pure(_real)


# -- the environment: a mapping in Python over a dict ----------------------------------------------
walk_as_written(*(os._Environ.__getitem__, os.getenv, os.environ.encodekey, os.environ.decodevalue))
