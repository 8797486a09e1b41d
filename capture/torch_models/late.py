"""Models of torch that few programs need: their modules are imported when one is first called.

In: nothing; `capture.capture` imports this file. Out: for each callable with a model in such a
module, a row with the module's name. A callable without a model in its module may have a row, too:
then the module is imported for nothing.
"""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _foreach_utils
from torch.utils import checkpoint as torch_checkpoint

from ...runtime.autograd import differentiate
from ..values.registry import models_in


def _named(holder: Any, *beginnings: str) -> list[Any]:
    """The callables of a module whose names begin so."""
    return [value for name, value in vars(holder).items() if name.startswith(beginnings)]


def _steps() -> list[Any]:
    """The functions of torch.optim that compute a step."""
    modules = [one for one in vars(torch.optim).values() if type(one) is ModuleType]
    found = [_named(one, "_single_tensor_", "_multi_tensor_", "_fused_") for one in modules]
    return [one for functions in found for one in functions if type(one) is FunctionType]


_PLACE = __package__ or ""
models_in(f"{_PLACE}.data_parallel", DistributedDataParallel.forward)
models_in(f"{_PLACE}.autograd_function", torch.autograd.Function.apply.__func__)
models_in(
    f"{_PLACE}.checkpoints",
    torch_checkpoint.checkpoint,
    torch_checkpoint.checkpoint_sequential,
    torch_checkpoint.create_selective_checkpoint_contexts,
)
models_in(
    f"{_PLACE}.differentiate",
    differentiate.differentiate,
    differentiate.separate,
    differentiate.gradients,
)
models_in(
    f"{_PLACE}.foreach",
    *_named(torch, "_foreach_", "_amp_"),
    _foreach_utils._device_has_foreach_support,
    _foreach_utils._get_foreach_kernels_supported_devices,
)
models_in(f"{_PLACE}.optimizer_rules", *_named(torch, "_fused_"), *_steps())
