"""Functions of torch that take another branch for tensors of a subclass, as ghosts are, with a result that lies otherwise.

In: the function of a call that is traced. Out: what stands for it over ghosts. The call that is recorded is the program's
own, which takes torch's branch for plain tensors when it is replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def _max_pool1d(real: Callable[..., Any]) -> Callable[..., Any]:
    """Plain tensors on the CPU that need no gradient go to a kernel whose result is in order, without places."""

    def pooled(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = real(input, *args, **kwargs)
        follows = torch.is_grad_enabled() and input.requires_grad
        plain = isinstance(result, torch.Tensor) and not follows and input.device.type == "cpu"
        return result.contiguous() if plain else result

    return pooled


AS_PLAIN: dict[Callable[..., Any], Callable[..., Any]] = {
    real: _max_pool1d(real) for real in (torch.max_pool1d, F.max_pool1d)
}
