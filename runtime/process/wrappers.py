"""Functions that torch.compile and torch.compiler.disable put around others, known by their code.

In: a code object. Out: which of the two has made it. Capture breaks at their calls, and the frame hook leaves what runs
below them alone: there torch.compile does its own work, or the program asked for plain Python. Nothing is imported for it.
"""

from __future__ import annotations

import os
import types

import torch

TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep  # files that begin with it are torch's
_FILE = os.path.join(TORCH_FOLDER, "_dynamo", "eval_frame.py")
COMPILED, DISABLED = "torch.compile", "torch.compiler.disable"
_KINDS = {
    "_TorchDynamoContext.__call__.<locals>.compile_wrapper": COMPILED,
    "_TorchDynamoContext.__call__.<locals>._fn": COMPILED,  # before torch 2.8
    "OptimizedModule.__call__": COMPILED,
    "DisableContext.__call__.<locals>._fn": DISABLED,
}


def kind_of(code: types.CodeType) -> str | None:
    """COMPILED or DISABLED for the code of such a wrapper."""
    name = getattr(code, "co_qualname", "")
    return _KINDS.get(name) if name in _KINDS and code.co_filename == _FILE else None
