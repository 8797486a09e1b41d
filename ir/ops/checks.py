"""Operators that torch takes apart for tensors without data, without the check that eager makes.

A trace asks for ours, `one_hot(index, n)`, which arrives whole, and records torch's own, which looks at the classes as it
runs (`failing`). Called by `as_plain` while a call is traced.
"""

from __future__ import annotations

import torch

from .python_kernels import OURS

_LIBRARY = torch.library.Library(OURS, "FRAGMENT")  # its operators live as long as it
_LIBRARY.define("one_hot(Tensor index, SymInt num_classes) -> Tensor")
one_hot = torch.ops.graftjit.one_hot.default
