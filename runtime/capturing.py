"""`capturing()`: how the library's own Python tells a capture from a plain run.

In plain Python the answer is False. The symbolic machine never runs the body: it folds a call of this very
function to True. So `nn.Cell.forward` can hand a construct to `jit` when Python runs it, and be walked
straight through when it is part of a frame that is being captured. Not for users: what a program does must
not depend on who runs it.
"""

from __future__ import annotations


def capturing() -> bool:
    """False in plain Python; True, as a constant, in a frame that is being captured."""
    return False
