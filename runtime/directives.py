"""What a program can say to a capture, and the library's own Python ask of it: functions that plain Python runs as
they stand and the symbolic machine answers itself.

`graft_break()` does nothing in plain Python; in a frame that is being captured the graph ends at it.

`capturing()` is how the library's own Python tells a capture from a plain run: False in plain Python, folded to True
by the machine. So `nn.Cell.forward` can hand a construct to `jit` when Python runs it, and be walked
straight through when it is part of a frame that is being captured. Not for users: what a program does must
not depend on who runs it.
"""

from __future__ import annotations


def capturing() -> bool:
    """False in plain Python; True, as a constant, in a frame that is being captured."""
    return False


def graft_break(reason: str = "") -> None:
    """A graph break of the program's own; in plain Python it does nothing.

    The graph of a compiled function ends at this call and another begins after it. The report lists it (GB140) with
    `reason`, a constant text; under `fullgraph=True` it raises as any other break does. For parting a function by
    hand: to look at a value between two graphs, or to find out which half of it is at fault.
    """
