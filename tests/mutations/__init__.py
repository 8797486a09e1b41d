"""What users change between two calls: the table of kinds, in files by what is changed."""

from . import (
    classes,
    containers,
    functions,
    hooks,
    modules,
    names,
    objects,
    opaque,
    state,
    tensors,
    values,
)  # fmt: skip
from .kinds import KINDS, SAME, Kind, Step, play

__all__ = [
    "KINDS", "SAME", "Kind", "Step", "play", "classes", "containers", "functions", "hooks", "modules",
    "names", "objects", "opaque", "state", "tensors", "values",
]  # fmt: skip
