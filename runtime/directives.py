"""Functions that do nothing in plain Python and that capture treats specially.

`graft_break()` ends the graph of a captured frame.

`capturing()` lets graftjit's own Python code distinguish capture from a plain run: it returns False
in plain Python, and capture folds it to True. So `nn.Cell.forward` passes a construct to `jit` when
Python runs it, and is walked through when it is part of a captured frame. It is not for users,
since the behaviour of a program must not depend on who runs it.
"""

from __future__ import annotations


def capturing() -> bool:
    """False in plain Python; the constant True in a captured frame."""
    return False


def graft_break(reason: str = "") -> None:
    """Break the graph here. In plain Python this does nothing.

    The graph of a compiled function ends at this call and another one begins after it. The report
    lists it (GB140) with `reason`, a constant text; under `fullgraph=True` it raises like any other
    break. Use it to split a function by hand: to inspect a value between two graphs, or to find out
    which half causes an error.
    """
