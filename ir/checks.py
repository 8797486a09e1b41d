"""Operators that compute nothing and raise what eager raises, where torch leaves its check out for tensors without data.

`check_classes(index, n)` raises as `one_hot` does. A node of it stays in a graph as whatever may raise does (`failing`).
Called by `as_plain` while a call is traced.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .opdef import OPS, OpDef
from .registered import OURS

_LIBRARY = torch.library.Library(OURS, "FRAGMENT")  # its operators live as long as it
_LIBRARY.define("check_classes(Tensor index, SymInt num_classes) -> ()")


def _check_classes(index: torch.Tensor, num_classes: int) -> None:
    if index.numel():
        low, high = index.aminmax()
        if int(low) < 0 or int(high) >= num_classes:
            F.one_hot(index, num_classes)


_LIBRARY.impl("check_classes", _check_classes, "CompositeExplicitAutograd")
check_classes = torch.ops.graftjit.check_classes.default
OPS[str(check_classes)] = OpDef(str(check_classes), "index", lambda op, index, num_classes: None)
