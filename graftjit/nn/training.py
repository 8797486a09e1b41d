"""Cells for training: `WithLossCell`, `ForwardValueAndGrad`, `WithGradCell`, `TrainOneStepCell`.

In: a network (a cell or torch module, jitted or not), a loss, an optimizer of torch. Out: cells
whose call returns a loss or gradients, or makes one training step. The gradients are those of
`graftjit.gradients`.
"""

from __future__ import annotations

from typing import Any

import torch

from ..gradients import GradOperation
from ..runtime.autograd.differentiate import differentiate, leaves
from .cell import Cell


class WithLossCell(Cell):
    """`construct(data, label)` is `loss_fn(backbone(data), label)`, for tensors of any shapes that
    these accept."""

    def __init__(self, backbone: Any, loss_fn: Any) -> None:
        super().__init__(auto_prefix=False)
        _check_network(backbone)
        if not callable(loss_fn):
            raise TypeError(f"loss_fn must be a cell or a function, not a {type(loss_fn).__name__}")
        self._backbone = backbone
        self._loss_fn = loss_fn

    def construct(self, data: Any, label: Any) -> Any:
        return self._loss_fn(self._backbone(data), label)

    @property
    def backbone_network(self) -> Any:
        """The network without the loss."""
        return self._backbone


class ForwardValueAndGrad(Cell):
    """`construct(*inputs)` returns (result of the network, gradients as of `GradOperation`).

    weights   tensors that require a gradient; None: the trainable parameters of the network

    With `sens_param` the last input is the gradient of the results and has their shapes.
    """

    def __init__(
        self,
        network: Any,
        weights: Any = None,
        get_all: bool = False,
        get_by_list: bool = False,
        sens_param: bool = False,
    ) -> None:
        super().__init__(auto_prefix=False)
        _check_network(network)
        self.network = network
        self.weights = None if weights is None else _listed(weights)
        self.grad = GradOperation(get_all, get_by_list, sens_param)

    def construct(self, *inputs: Any) -> Any:
        result, found = self.grad.both(self.network, self.weights, inputs, {})
        return result, found


class WithGradCell(Cell):
    """`construct(*inputs)` returns a tuple of the gradients of all trainable parameters.

    They are the gradients of the network's results, or with a `loss_fn` those of
    `loss_fn(network(data), label)`. `sens`: the gradient of the results, in place of ones.
    """

    def __init__(self, network: Any, loss_fn: Any = None, sens: Any = None) -> None:
        super().__init__(auto_prefix=False)
        _check_network(network)
        self.network = network
        self.network_with_loss = network if loss_fn is None else WithLossCell(network, loss_fn)
        self.network_with_loss.train()
        self.weights = tuple(p for p in network.parameters() if p.requires_grad)
        self.sens = sens

    def construct(self, *inputs: Any) -> Any:
        _, _, found = differentiate(self.network_with_loss, inputs, {}, (), self.weights, self.sens)
        return tuple(found)


class TrainOneStepCell(Cell):
    """`construct(*inputs)` makes one training step and returns the network's result, the loss
    before the step.

    network      returns the loss: a cell or module, often a `WithLossCell`
    optimizer    an optimizer of torch over parameters of the network: it steps with the gradients
                 of this call, and then sets `.grad` of the parameters to None; or a callable with
                 `parameters`, which is called with the tuple of their gradients
    sens         a number, the gradient of the loss (a factor of all gradients); None: 1
    return_grad  return (loss, tuple of the gradients in the order of the optimizer's parameters)

    Raises TypeError for arguments of a wrong type.
    """

    def __init__(
        self, network: Any, optimizer: Any, sens: float | None = None, return_grad: bool = False
    ) -> None:
        super().__init__(auto_prefix=False)
        _check_network(network)
        if sens is not None and (isinstance(sens, bool) or not isinstance(sens, (int, float))):
            raise TypeError(f"sens must be a number or None, not a {type(sens).__name__}")
        self.network = network
        self.optimizer = optimizer
        self.sens = sens
        self.return_grad = return_grad
        self._by_torch = isinstance(optimizer, torch.optim.Optimizer)
        if not self._by_torch and not (callable(optimizer) and hasattr(optimizer, "parameters")):
            raise TypeError(
                "optimizer is one of torch.optim, or can be called with gradients and has"
                f" `parameters`; this is a {type(optimizer).__name__}"
            )

    def construct(self, *inputs: Any) -> Any:
        weights = self._weights()
        loss, gradients = self._differentiated(inputs, weights)
        if self._by_torch:
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = gradient
            self.optimizer.step()
            for weight in weights:
                weight.grad = None
        else:
            self.optimizer(gradients)
        return (loss, gradients) if self.return_grad else loss

    def _weights(self) -> list[torch.Tensor]:
        if not self._by_torch:
            found = self.optimizer.parameters
            return _listed(found() if callable(found) else found)
        return [
            p for group in self.optimizer.param_groups for p in group["params"] if p.requires_grad
        ]

    def _differentiated(self, inputs: Any, weights: Any) -> tuple[Any, tuple[torch.Tensor, ...]]:
        sens = self.sens
        if sens is None:
            loss, _, found = differentiate(self.network, inputs, {}, (), weights)
            return loss, tuple(found)

        def scaled(*given: Any) -> Any:
            result = self.network(*given)
            return [leaf * sens for leaf in leaves(result)], result

        both, _, found = differentiate(scaled, inputs, {}, (), weights, None, True)
        return both[1], tuple(found)


def _check_network(network: Any) -> None:
    if not isinstance(network, torch.nn.Module):
        raise TypeError(f"the network must be a cell or a module, not a {type(network).__name__}")


def _listed(weights: Any) -> list[torch.Tensor]:
    return [weights] if isinstance(weights, torch.Tensor) else list(weights)
