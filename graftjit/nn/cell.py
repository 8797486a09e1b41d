"""`Cell`: a torch module whose computation is the method `construct`; with `SequentialCell` and
`CellList`.

In: subclasses written for a static-graph mode. Out: ordinary torch modules (state_dict, hooks,
`to`, pickling). In PYNATIVE_MODE `forward` is `construct`. In GRAPH_MODE the outermost `forward`
passes `construct` to `jit`, and inner cells are captured as part of it. As in the static-graph
system, and unlike torch, a cell starts in evaluation mode; `set_train()` or `train()` enables
training.
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
        """The computation, which a subclass defines; else raises NotImplementedError."""
        raise NotImplementedError(f"{type(self).__name__} has no construct(self, ...)")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run `construct`; in GRAPH_MODE compiled, unless it is already part of a capture."""
        if not capturing() and current_context().mode == GRAPH_MODE:
            return _compiled(self.construct)(*args, **kwargs)
        return self.construct(*args, **kwargs)

    def set_train(self, mode: bool = True) -> Cell:
        """Enable or disable training mode for this cell and all inner cells."""
        return self.train(mode)

    def set_grad(self, requires_grad: bool = True) -> Cell:
        """Accepted without effect: as in torch, `requires_grad` of tensors decides which gradients
        are computed."""
        return self

    def insert_child_to_cell(self, child_name: str, child_cell: torch.nn.Module | None) -> None:
        """Add a child under an unused name. Raises KeyError if the name is in use."""
        if hasattr(self, child_name) and child_name not in self._modules:
            raise KeyError(f"{type(self).__name__} has an attribute {child_name!r} already")
        if self._modules.get(child_name) is not None:
            raise KeyError(f"{type(self).__name__} has a cell {child_name!r} already")
        self.add_module(child_name, child_cell)

    def insert_param_to_cell(self, param_name: str, param: torch.nn.Parameter | None) -> None:
        """Register a parameter under a name."""
        self.register_parameter(param_name, param)

    def cells(self) -> Iterable[torch.nn.Module]:
        """The direct children, without duplicates."""
        return tuple(self.children())

    def cells_and_names(self, name_prefix: str = "") -> Iterator[tuple[str, torch.nn.Module]]:
        """(name, cell) of this cell and all inner cells."""
        return self.named_modules(prefix=name_prefix)

    def name_cells(self) -> dict[str, torch.nn.Module]:
        """The direct children by name."""
        return dict(self.named_children())

    def parameters_and_names(
        self, name_prefix: str = "", expand: bool = True
    ) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """(name, parameter) pairs; `expand=False` excludes those of inner cells."""
        return self.named_parameters(prefix=name_prefix, recurse=expand)

    def get_parameters(self, expand: bool = True) -> Iterator[torch.nn.Parameter]:
        """The parameters; `expand=False` excludes those of inner cells."""
        return self.parameters(recurse=expand)

    def parameters_dict(self, recurse: bool = True) -> dict[str, torch.nn.Parameter]:
        """The parameters by name; `recurse=False` excludes those of inner cells."""
        return dict(self.named_parameters(recurse=recurse))

    def trainable_params(self, recurse: bool = True) -> list[torch.nn.Parameter]:
        """The parameters that require a gradient."""
        return [p for p in self.parameters(recurse=recurse) if p.requires_grad]

    def untrainable_params(self, recurse: bool = True) -> list[torch.nn.Parameter]:
        """The parameters that require no gradient."""
        return [p for p in self.parameters(recurse=recurse) if not p.requires_grad]


def begin(cell: Cell, kind: type[torch.nn.Module], *args: Any, **kwargs: Any) -> None:
    """Initialise a cell as a module of its base class `kind` of torch."""
    kind.__init__(cell, *args, **kwargs)
    cell.training = False


def _compiled(construct: Any) -> Any:
    """`construct` (a bound method, or an instance attribute in its place) through `jit`.

    The jitted function is stored on the function itself, so both have the same lifetime. An object
    that is not a Python function (a jitted callable, a partial) is returned unchanged.
    """
    function = getattr(construct, "__func__", construct)
    if type(function) is not FunctionType:
        return construct
    config = current_context().jit_config
    memo = function.__dict__.get(_MEMO)
    # functools.wraps copies __dict__, so the memo contains the function it was made for.
    if memo is None or memo[0] is not function or memo[1] != config:
        # `jit` imports this file
        from ..jit import jit

        memo = (function, config, jit(function, config=config))
        setattr(function, _MEMO, memo)
    return memo[2] if function is construct else memo[2].__get__(construct.__self__)


def made_in_graph_mode(target: Any) -> Any:
    """The jitted form that GRAPH_MODE made of a cell, or of its class's function `construct`; or
    None."""
    if isinstance(target, Cell):
        target = getattr(target.construct, "__func__", None)
    memo = target.__dict__.get(_MEMO) if type(target) is FunctionType else None
    return memo[2] if memo is not None and memo[0] is target else None


class SequentialCell(Cell, torch.nn.Sequential):
    """Cells in sequence: each gets the result of the previous one.

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
    """A list of cells, registered under their indices. Takes cells, or one list of cells."""

    def __init__(self, *cells: Any, auto_prefix: bool = True) -> None:
        if len(cells) == 1 and not isinstance(cells[0], torch.nn.Module):
            cells = tuple(cells[0])
        begin(self, torch.nn.ModuleList, cells)
