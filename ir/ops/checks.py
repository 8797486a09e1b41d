"""Operators of ours that keep a check of eager's, which torch drops for tensors without data.

torch decomposes its own `one_hot` over such tensors. So a trace calls our `one_hot(index, n)`
(`ir.trace.substitutes`), which arrives whole; the recorder then records torch's own, which checks
the classes at run time.
"""

from __future__ import annotations

import torch

from ..graph.schema import OURS

# The operators live as long as this object.
_LIBRARY = torch.library.Library(OURS, "FRAGMENT")
_LIBRARY.define("one_hot(Tensor index, SymInt num_classes) -> Tensor")
one_hot = torch.ops.graftjit.one_hot.default
