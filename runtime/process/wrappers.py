"""Detection of the wrapper functions of torch.compile and torch.compiler.disable by their code.

In: a code object. Out: which of the two made it. Capture breaks at calls of such wrappers, and the
frame hook ignores the frames below them: there torch.compile does its own work, or the program
wants plain Python. torch._dynamo is not imported for this.
"""

from __future__ import annotations

import os
import types

import torch

TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep  # prefix of torch's files
_FILE = os.path.join(TORCH_FOLDER, "_dynamo", "eval_frame.py")
COMPILED, DISABLED = "torch.compile", "torch.compiler.disable"
_KINDS = {
    "_TorchDynamoContext.__call__.<locals>.compile_wrapper": COMPILED,
    "_TorchDynamoContext.__call__.<locals>._fn": COMPILED,  # before torch 2.8
    "OptimizedModule.__call__": COMPILED,
    "DisableContext.__call__.<locals>._fn": DISABLED,
}


def kind_of(code: types.CodeType) -> str | None:
    """COMPILED or DISABLED for the code of such a wrapper, else None."""
    name = getattr(code, "co_qualname", "")
    return _KINDS.get(name) if name in _KINDS and code.co_filename == _FILE else None
