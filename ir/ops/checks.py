"""Operators of ours that keep a check of eager's that torch drops for tensors without data.

torch takes `one_hot` apart while it traces such tensors. A trace therefore calls our
`one_hot(index, n)`, which arrives whole, and records torch's own, which checks the classes at run
time (`failing`). `as_plain` calls it during a trace.
"""

from __future__ import annotations

import torch

from .python_kernels import OURS

# The operators live as long as this object.
_LIBRARY = torch.library.Library(OURS, "FRAGMENT")
_LIBRARY.define("one_hot(Tensor index, SymInt num_classes) -> Tensor")
one_hot = torch.ops.graftjit.one_hot.default
