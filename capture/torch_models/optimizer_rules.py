"""Rules of optimizers that count steps: one function for all parameters of a group.

In: the calls of `step` with its lists of tensors. Out: torch's operations, with its rounding. A
step count is a tensor, so that its value is no constant of the graph: numbers that Python computes
from it are computed in double precision, and branches on it become a selection per tensor
(`torch.where`). Most rules have one function for `foreach=True` as well, which differs only in
rounding and writes as often. Fused steps (`fused=True`) are the same rules over copies in the
precision of torch's fused kernels, put back without a change of versions, as those kernels write.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim._adafactor import _multi_tensor_adafactor, _single_tensor_adafactor
from torch.optim.adagrad import _multi_tensor_adagrad, _single_tensor_adagrad
from torch.optim.adam import _fused_adam, _multi_tensor_adam, _single_tensor_adam
from torch.optim.adamax import _multi_tensor_adamax, _single_tensor_adamax
from torch.optim.asgd import _multi_tensor_asgd, _single_tensor_asgd
from torch.optim.nadam import _multi_tensor_nadam, _single_tensor_nadam
from torch.optim.radam import _multi_tensor_radam, _single_tensor_radam
from torch.optim.rprop import _multi_tensor_rprop, _single_tensor_rprop

from ...ir.passes.defer_writes import put_back
from ..data_model.polyfills import stands_for
from .optimizers import as_number, left_to_python, power, to_scalar
from .tensor_scalars import NARROW


def _check(has_complex: Any, differentiable: Any, capturable: Any = False, **others: Any) -> None:
    """Leave options without a rule to Python."""
    if has_complex:
        left_to_python("complex parameters")
    if differentiable:
        left_to_python("differentiable=True")
    if capturable:
        left_to_python("capturable=True")
    if others.get("grad_scale") is not None or others.get("found_inf") is not None:
        left_to_python("a gradient scaler")


def _gradient(param: Any, gradient: Any, maximize: Any, weight_decay: Any) -> Any:
    if maximize:
        gradient = -gradient
    return gradient.add(param, alpha=weight_decay) if weight_decay != 0 else gradient


@stands_for(_single_tensor_adam)
def adam(
    params: Any, grads: Any, firsts: Any, seconds: Any, largests: Any, counts: Any,
    *, amsgrad: Any, beta1: Any, beta2: Any, lr: Any, weight_decay: Any, eps: Any, maximize: Any,
    decoupled_weight_decay: Any, **options: Any,
) -> None:  # fmt: skip
    """Algorithm 1 of https://arxiv.org/abs/1412.6980, with options.

    Decoupled weight decay: https://arxiv.org/abs/1711.05101; AMSGrad:
    https://arxiv.org/abs/1904.09237.
    """
    _check(**options)
    lr = to_scalar(lr)
    lists = params, grads, firsts, seconds, largests if amsgrad else seconds, counts
    for param, gradient, first, second, largest, count in zip(*lists, strict=True):
        count += 1
        if decoupled_weight_decay and weight_decay != 0:
            param.mul_(1 - lr * weight_decay)
        gradient = _gradient(
            param, gradient, maximize, 0 if decoupled_weight_decay else weight_decay
        )
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        done = as_number(count)
        size = (1 - power(beta1, done)).reciprocal() * -lr
        spread = (1 - power(beta2, done)) ** 0.5
        if amsgrad:
            torch.maximum(largest, second, out=largest)
        param.addcdiv_(first, (largest.sqrt() / spread).add_(eps), value=size)


@stands_for(_multi_tensor_adam)
def adam_of_lists(
    params: Any, *lists: Any, lr: Any, beta1: Any, beta2: Any, **options: Any
) -> None:
    for number in (lr, beta1, beta2):
        if isinstance(number, torch.Tensor):
            left_to_python("foreach=True and a rate that is a tensor")
    if params:
        adam(params, *lists, lr=lr, beta1=beta1, beta2=beta2, **options)


@stands_for(_single_tensor_nadam, _multi_tensor_nadam)
def nadam(
    *lists: Any, beta1: Any, beta2: Any, lr: Any, weight_decay: Any, momentum_decay: Any, eps: Any,
    decoupled_weight_decay: Any, maximize: Any, **options: Any,
) -> None:  # fmt: skip
    """Adam with Nesterov's momentum: https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ"""
    _check(**options)
    lr = to_scalar(lr)
    for param, gradient, first, second, product, count in zip(*lists, strict=True):
        count += 1
        done = as_number(count)
        if decoupled_weight_decay and weight_decay != 0:
            param.mul_(1 - lr * weight_decay)
        gradient = _gradient(
            param, gradient, maximize, 0 if decoupled_weight_decay else weight_decay
        )
        now = (1.0 - 0.5 * 0.96 ** (done * momentum_decay)) * beta1
        after = (1.0 - 0.5 * 0.96 ** ((done + 1) * momentum_decay)) * beta1
        product.mul_(now.to(product.dtype))
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        below = second.div(1 - power(beta2, done)).sqrt().add_(eps)
        total = as_number(product)
        param.addcdiv_(gradient, below, value=(1.0 - now) / (1.0 - total) * -lr)
        param.addcdiv_(first, below, value=after / (1.0 - total * after) * -lr)


@stands_for(_single_tensor_radam, _multi_tensor_radam)
def radam(
    *lists: Any, beta1: Any, beta2: Any, lr: Any, weight_decay: Any, eps: Any,
    decoupled_weight_decay: Any, maximize: Any, **options: Any,
) -> None:  # fmt: skip
    """Adam with a rectified variance: algorithm 2 of https://arxiv.org/abs/1908.03265"""
    _check(**options)
    lr = to_scalar(lr)
    longest = 2 / (1 - beta2) - 1
    for param, gradient, first, second, count in zip(*lists, strict=True):
        count += 1
        done = as_number(count)
        if decoupled_weight_decay and weight_decay != 0:
            param.mul_(1 - lr * weight_decay)
        gradient = _gradient(
            param, gradient, maximize, 0 if decoupled_weight_decay else weight_decay
        )
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        grown = power(beta2, done)
        length = longest - 2 * done * grown / (1 - grown)
        plain = first / (1 - power(beta1, done)) * lr
        above, below = (length - 4) * (length - 2) * longest, (longest - 4) * (longest - 2) * length
        adaptive = second.sqrt().add_(eps).reciprocal() * (1 - grown) ** 0.5
        adapted = plain * adaptive * (above / below) ** 0.5
        param.add_(torch.where(length > 5.0, adapted, plain), alpha=-1.0)


@stands_for(_single_tensor_adamax, _multi_tensor_adamax)
def adamax(
    *lists: Any, eps: Any, beta1: Any, beta2: Any, lr: Any, weight_decay: Any, maximize: Any,
    **options: Any,
) -> None:  # fmt: skip
    """Algorithm 2 of https://arxiv.org/abs/1412.6980"""
    _check(**options)
    lr = to_scalar(lr)
    for param, gradient, first, largest, count in zip(*lists, strict=True):
        count += 1
        gradient = _gradient(param, gradient, maximize, weight_decay)
        first.lerp_(gradient, 1 - beta1)
        torch.maximum(largest.mul_(beta2), gradient.abs().add_(eps), out=largest)
        size = (1 - power(beta1, as_number(count))).reciprocal() * -lr
        param.addcdiv_(first, largest, value=size)


@stands_for(_single_tensor_adagrad, _multi_tensor_adagrad)
def adagrad(
    *lists: Any, lr: Any, weight_decay: Any, lr_decay: Any, eps: Any, maximize: Any, **options: Any
) -> None:
    """Adagrad: http://jmlr.org/papers/v12/duchi11a.html"""
    _check(**options)
    lr = to_scalar(lr)
    for param, gradient, total, count in zip(*lists, strict=True):
        count += 1
        gradient = _gradient(param, gradient, maximize, weight_decay)
        rate = (1 + (as_number(count) - 1) * lr_decay).reciprocal() * -lr
        total.addcmul_(gradient, gradient, value=1)
        param.addcdiv_(gradient, total.sqrt().add_(eps), value=rate)


@stands_for(_single_tensor_adafactor, _multi_tensor_adafactor)
def adafactor(
    *lists: Any, d: Any, lr: Any, beta2_decay: Any, weight_decay: Any, eps1: Any, eps2: Any,
    maximize: Any, **options: Any,
) -> None:  # fmt: skip
    """Adafactor: algorithms 4 and 5 of https://arxiv.org/abs/1804.04235"""
    _check(differentiable=False, **options)
    lr = to_scalar(lr)
    for param, given, row, column, variance, count in zip(*lists, strict=True):
        gradient = -given if maximize else given
        if eps1 is None:
            eps1 = torch.finfo(param.dtype).eps  # of the first parameter, for all
        count += 1
        done = as_number(count)
        new = done**beta2_decay
        rate = torch.minimum((done**0.5).reciprocal(), torch.zeros_like(done) + lr)
        size = (as_number(param.norm(2)) / param.numel() ** 0.5).clamp(min=eps2) * rate
        if weight_decay != 0:
            param.mul_(1 - lr * weight_decay)
        if gradient.dim() > 1:
            for kept, dim in ((row, -1), (column, -2)):
                norms = torch.norm(gradient, dim=dim, keepdim=True)
                mean = norms.square_().div_(gradient.size(dim))
                kept.lerp_(mean, new.to(kept.dtype))
            estimate = (row @ column).div_(row.mean(dim=-2, keepdim=True).clamp_(min=eps1))
        else:
            variance.lerp_(gradient * gradient, new.to(variance.dtype))
            estimate = variance.clone()
        update = estimate.clamp_(min=eps1 * eps1).rsqrt_().mul_(gradient)
        length = as_number(update.norm(2)) / (update.numel() ** 0.5 * d)
        param.add_(update, alpha=-size / length.clamp(min=1.0))


@stands_for(_single_tensor_asgd)
@stands_for(_multi_tensor_asgd, of_lists=True)
def asgd(
    *lists: Any, lambd: Any, lr: Any, t0: Any, alpha: Any, weight_decay: Any, maximize: Any,
    of_lists: Any = False, **options: Any,
) -> None:  # fmt: skip
    """Averaged SGD: Polyak and Juditsky, SIAM J. Control and Optimization 30 (1992), 838-855."""
    _check(**options)
    lr = to_scalar(lr)
    for param, gradient, mean, mu, eta, count in zip(*lists, strict=True):
        count += 1
        gradient = _gradient(param, gradient, maximize, weight_decay)
        if of_lists:
            param.addcmul_(gradient.add(param, alpha=lambd), eta, value=-1)
            mean.addcmul_(param - mean, mu)
        else:
            rate = as_number(eta)
            param.mul_(1 - lambd * rate)
            param.add_(gradient, alpha=-rate)
            mean.copy_(torch.where(mu != 1, mean + (param - mean).mul_(mu), param))
        done = as_number(count)
        eta.copy_(((1 + done * (lambd * lr)) ** alpha).reciprocal() * lr)
        mu.copy_((done - t0).clamp_(min=1).reciprocal())


def _signs(gradient: Any, before: Any, smaller: Any, larger: Any) -> Any:
    """The factor by which each step size changes."""
    sign = gradient.mul(before).sign()
    sign = torch.where(sign.gt(0), larger, sign)
    sign = torch.where(sign.lt(0), smaller, sign)
    return torch.where(sign.eq(0), 1, sign)


@stands_for(_single_tensor_rprop)
@stands_for(_multi_tensor_rprop, of_lists=True)
def rprop(
    *lists: Any, step_size_min: Any, step_size_max: Any, etaminus: Any, etaplus: Any,
    maximize: Any, of_lists: Any = False, **options: Any,
) -> None:  # fmt: skip
    """Resilient propagation: https://doi.org/10.1109/ICNN.1993.298623

    `of_lists`: store the gradients before those with a changed sign become zero.
    """
    _check(**options)
    for param, given, before, size, count in zip(*lists, strict=True):
        count += 1
        gradient = -given if maximize else given
        sign = _signs(gradient, before, etaminus, etaplus)
        if of_lists:
            before.copy_(given)
            if maximize:
                before.neg_()
            gradient = before
        size.mul_(sign).clamp_(step_size_min, step_size_max)
        gradient = torch.where(sign.eq(etaminus), 0, gradient)
        if of_lists:
            before.copy_(gradient)
            gradient = before
        param.addcmul_(gradient.sign(), size, value=-1)
        if not of_lists:
            before.copy_(gradient)


# -- fused steps -----------------------------------------------------------------------------------
def _copies(tensors: Any) -> Any:
    """Copies in which a fused kernel computes: narrow dtypes in float32."""
    return [t.to(torch.float32 if t.dtype in NARROW else t.dtype, copy=True) for t in tensors]


def _put(tensors: Any, copies: Any, skip: Any) -> None:
    """Write the results, or nothing where a gradient scaler found one that is not finite."""
    for tensor, copy in zip(tensors, copies, strict=True):
        new = copy.to(tensor.dtype)
        put_back(tensor, new if skip is None else torch.where(skip, tensor, new))


def _check_layouts(*lists: Any) -> None:
    """Fused kernels on a CPU take the elements of their tensors in the order of memory."""
    for tensors in zip(*lists, strict=True):
        sizes, steps = tensors[0].shape, tensors[0].stride()
        last = sum([(size - 1) * step for size, step in zip(sizes, steps, strict=True)])
        for tensor in tensors:
            if tensor.device.type != "cpu":
                left_to_python("fused=True")
            if tensor.stride() != steps or last + 1 != tensor.numel():
                left_to_python("fused=True and tensors of several layouts, or with holes")


def _unscaled(grads: Any, grad_scale: Any, found_inf: Any) -> tuple[Any, Any]:
    """(gradients as a fused kernel reads them, whether it skips its writes)

    A scaled gradient is replaced by the unscaled one.
    """
    skip = None if found_inf is None else found_inf == 1
    found = _copies(grads)
    if grad_scale is not None:
        found = [grad / grad_scale.to(grad.dtype) for grad in found]
        _put(grads, found, skip)
    return found, skip


@stands_for(torch._fused_adam_, decoupled=False)
@stands_for(torch._fused_adamw_, decoupled=True)
def fused_adam(
    params: Any, grads: Any, firsts: Any, seconds: Any, largests: Any, counts: Any, *,
    lr: Any, beta1: Any, beta2: Any, weight_decay: Any, eps: Any, amsgrad: Any, maximize: Any,
    grad_scale: Any = None, found_inf: Any = None, decoupled: Any,
) -> None:  # fmt: skip
    """The counts were raised by the caller."""
    lists = [params, firsts, seconds] + ([largests] if amsgrad else [])
    _check_layouts(grads, *lists)
    used, skip = _unscaled(grads, grad_scale, found_inf)
    copies = [_copies(one) for one in lists]
    before = [count - 1 for count in counts]
    adam(
        copies[0], used, copies[1], copies[2], copies[3] if amsgrad else [], before,
        amsgrad=amsgrad, beta1=beta1, beta2=beta2, lr=lr, weight_decay=weight_decay, eps=eps,
        maximize=maximize, decoupled_weight_decay=decoupled, has_complex=False,
        differentiable=False,
    )  # fmt: skip
    for tensors, made in zip(lists, copies, strict=True):
        _put(tensors, made, skip)


@stands_for(_fused_adam)
def fused_adam_of_group(
    params: Any, grads: Any, firsts: Any, seconds: Any, largests: Any, counts: Any,
    grad_scale: Any, found_inf: Any, *, has_complex: Any, capturable: Any, differentiable: Any,
    decoupled_weight_decay: Any, **options: Any,
) -> None:  # fmt: skip
    """torch's function. Betas stay constants until they vary; its own treats them as rates."""
    if differentiable:
        left_to_python("fused=True and differentiable=True")
    if params:
        torch._foreach_add_(counts, 1)
        fused_adam(
            params, grads, firsts, seconds, largests, counts, grad_scale=grad_scale,
            found_inf=found_inf, decoupled=decoupled_weight_decay, **options,
        )  # fmt: skip
        if found_inf is not None:
            torch._foreach_sub_(counts, [found_inf] * len(counts))


@stands_for(torch._fused_adagrad_)
def fused_adagrad(
    params: Any, grads: Any, totals: Any, counts: Any, *, lr: Any, lr_decay: Any,
    weight_decay: Any, eps: Any, maximize: Any, grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    """The counts were raised by the caller."""
    _check_layouts(params, grads, totals)
    used, skip = _unscaled(grads, grad_scale, found_inf)
    made, sums = _copies(params), _copies(totals)
    adagrad(
        made, used, sums, [count - 1 for count in counts], lr=lr, weight_decay=weight_decay,
        lr_decay=lr_decay, eps=eps, maximize=maximize, has_complex=False, differentiable=False,
    )  # fmt: skip
    _put(params, made, skip)
    _put(totals, sums, skip)


@stands_for(torch._fused_sgd_)
def fused_sgd(
    params: Any, grads: Any, buffers: Any, *, weight_decay: Any, momentum: Any, lr: Any,
    dampening: Any, nesterov: Any, maximize: Any, is_first_step: Any, grad_scale: Any = None,
    found_inf: Any = None,
) -> None:  # fmt: skip
    """Stochastic gradient descent with momentum, as `torch.optim.SGD` documents it.

    For narrow dtypes, torch's fused kernel gives other values than its formula.
    """
    _check_layouts(params, grads, *([buffers] if buffers else []))
    if params[0].dtype in NARROW:
        left_to_python("fused=True and parameters of a narrow dtype")
    used, skip = _unscaled(grads, grad_scale, found_inf)
    lr, copies = to_scalar(lr), _copies(params)
    kept = [] if is_first_step else _copies(buffers)
    for place, (param, gradient) in enumerate(zip(copies, used, strict=True)):
        gradient = _gradient(param, gradient, maximize, weight_decay)
        if buffers and is_first_step:
            kept.append(gradient)
        elif buffers:
            kept[place].mul_(momentum).add_(gradient, alpha=1 - dampening)
        if buffers:
            gradient = gradient.add(kept[place], alpha=momentum) if nesterov else kept[place]
        param.add_(gradient, alpha=-lr)
    _put(params, copies, skip)
    if buffers:
        _put(buffers, kept, skip)
