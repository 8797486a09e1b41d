"""`Cell`: a torch module whose computation is called `construct`; with `SequentialCell` and `CellList`.

In: subclasses written for a static-graph mode. Out: ordinary torch modules (state_dict, hooks, `to`, pickling).
In PYNATIVE_MODE `forward` is `construct`. In GRAPH_MODE the outermost `forward` hands `construct` to `jit`, and
cells inside it are captured as part of it. As in the static-graph system, and unlike torch, a cell starts
in evaluation mode: `set_train()` or `train()` turns training on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

import torch

from ..context import GRAPH_MODE, current_context
from ..runtime.directives import capturing

_MEMO = "__graftjit_construct__"


class Cell(torch.nn.Module):
    """Base of all cells. Subclasses define `construct(self, ...)`."""

    def __init__(self, auto_prefix: bool = True, flags: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.training = False

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """The computation, which a subclass defines. Raises NotImplementedError where it does not."""
        raise NotImplementedError(f"{type(self).__name__} has no construct(self, ...)")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """`construct`; in GRAPH_MODE compiled, unless it is part of what is being compiled already."""
        if not capturing() and current_context().mode == GRAPH_MODE:
            return _compiled(self.construct)(*args, **kwargs)
        return self.construct(*args, **kwargs)

    def set_train(self, mode: bool = True) -> Cell:
        """Training mode on or off for this cell and all inside it."""
        return self.train(mode)

    def set_grad(self, requires_grad: bool = True) -> Cell:
        """Accepted: which gradients are computed follows from `requires_grad` of tensors, as in torch."""
        return self

    def insert_child_to_cell(self, child_name: str, child_cell: torch.nn.Module | None) -> None:
        """Add a child under a name that is still free. Raises KeyError where it is taken."""
        if hasattr(self, child_name) and child_name not in self._modules:
            raise KeyError(f"{type(self).__name__} has an attribute {child_name!r} already")
        if self._modules.get(child_name) is not None:
            raise KeyError(f"{type(self).__name__} has a cell {child_name!r} already")
        self.add_module(child_name, child_cell)

    def insert_param_to_cell(self, param_name: str, param: torch.nn.Parameter | None) -> None:
        """Register a parameter under a name."""
        self.register_parameter(param_name, param)

    def cells(self) -> Iterable[torch.nn.Module]:
        """The direct children, each once."""
        return tuple(self.children())

    def cells_and_names(self, name_prefix: str = "") -> Iterator[tuple[str, torch.nn.Module]]:
        """(name, cell) of this cell and of all inside it."""
        return self.named_modules(prefix=name_prefix)

    def name_cells(self) -> dict[str, torch.nn.Module]:
        """The direct children by name."""
        return dict(self.named_children())

    def parameters_and_names(
        self, name_prefix: str = "", expand: bool = True
    ) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """(name, parameter); `expand=False` leaves out those of inner cells."""
        return self.named_parameters(prefix=name_prefix, recurse=expand)

    def get_parameters(self, expand: bool = True) -> Iterator[torch.nn.Parameter]:
        """The parameters; `expand=False` leaves out those of inner cells."""
        return self.parameters(recurse=expand)

    def parameters_dict(self, recurse: bool = True) -> dict[str, torch.nn.Parameter]:
        """The parameters by name; `recurse=False` leaves out those of inner cells."""
        return dict(self.named_parameters(recurse=recurse))

    def trainable_params(self, recurse: bool = True) -> list[torch.nn.Parameter]:
        """The parameters that require a gradient."""
        return [p for p in self.parameters(recurse=recurse) if p.requires_grad]

    def untrainable_params(self, recurse: bool = True) -> list[torch.nn.Parameter]:
        """The parameters that require no gradient."""
        return [p for p in self.parameters(recurse=recurse) if not p.requires_grad]


def begin(cell: Cell, kind: type[torch.nn.Module], *args: Any, **kwargs: Any) -> None:
    """Initialise a cell as a module of torch's class `kind`, which it derives from."""
    kind.__init__(cell, *args, **kwargs)
    cell.training = False


def _compiled(construct: Any) -> Any:
    """`construct` (a bound method, or what an instance has in its place) through `jit`.

    The jitted function is kept on the function itself, so it lives as long and no longer. What is not a
    Python function (a jitted callable, a partial) is called as it is.
    """
    function = getattr(construct, "__func__", construct)
    if type(function) is not FunctionType:
        return construct
    config = current_context().jit_config
    memo = function.__dict__.get(_MEMO)
    # functools.wraps copies __dict__: the memo says which function it was made for.
    if memo is None or memo[0] is not function or memo[1] != config:
        from ..jit import jit

        memo = (function, config, jit(function, config=config))
        setattr(function, _MEMO, memo)
    return memo[2] if function is construct else memo[2].__get__(construct.__self__)


def made_in_graph_mode(target: Any) -> Any:
    """What GRAPH_MODE has made of a cell, or of the function `construct` of its class; None if nothing."""
    if isinstance(target, Cell):
        target = getattr(target.construct, "__func__", None)
    memo = target.__dict__.get(_MEMO) if type(target) is FunctionType else None
    return memo[2] if memo is not None and memo[0] is target else None


class SequentialCell(Cell, torch.nn.Sequential):
    """Cells in a row, each fed with the result of the one before.

    Takes cells, one list of cells, or one dict of names to cells.
    """

    def __init__(self, *cells: Any) -> None:
        if len(cells) == 1 and isinstance(cells[0], (list, tuple)):
            cells = tuple(cells[0])
        elif len(cells) == 1 and isinstance(cells[0], dict):
            cells = (OrderedDict(cells[0]),)
        begin(self, torch.nn.Sequential, *cells)

    def construct(self, input: Any) -> Any:
        for cell in self._modules.values():
            input = cell(input)
        return input


class CellList(Cell, torch.nn.ModuleList):
    """A list of cells, registered under their numbers. Takes cells, or one list of cells."""

    def __init__(self, *cells: Any, auto_prefix: bool = True) -> None:
        if len(cells) == 1 and not isinstance(cells[0], torch.nn.Module):
            cells = tuple(cells[0])
        begin(self, torch.nn.ModuleList, cells)
