"""Copies of inputs that are saved for the backward: they have another layout than the input where that has holes.

What the backward makes again of such an input (views, copies) reads the copy, and so must follow its layout.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graftjit import jit

# Inputs (2, 8, 8) by layout, of `n` elements or more a row: the stride of the first dimension is a symbol from the second n on.
LAYOUTS = {
    "rows of longer ones": lambda x: x[:, :64].view(2, 8, 8),
    "turned": lambda x: x[:, :64].view(2, 8, 8).transpose(1, 2),
    "turned around": lambda x: x[:, :64].view(2, 8, 8).permute(2, 1, 0)[:2].expand(2, 8, 2).repeat(1, 1, 4),
    "every second": lambda x: x[:, :128:2].view(2, 8, 8),
    "begins later": lambda x: x[:, 3:67].view(2, 8, 8).transpose(1, 2),
    "one row for all": lambda x: x[:1, :64].view(1, 8, 8).expand(2, 8, 8),
}  # fmt: skip
# What the forward makes of them: four times as large, so that the backward makes it again of a copy of the input.
MADE = {
    "expanded": lambda x: x.unsqueeze(2).expand(2, 8, 4, 8).contiguous(),
    "repeated": lambda x: x.repeat(1, 4, 1).view(2, 8, 4, 8),
    "merged": lambda x: x.unsqueeze(1).expand(2, 4, 8, 8).reshape(2, 8, 4, 8),
    "a part": lambda x: x[:, 1:3].transpose(1, 2).unsqueeze(2).expand(2, 8, 4, 2).repeat(1, 1, 1, 4),
    "flattened": lambda x: x.flatten(1).unsqueeze(1).expand(2, 4, 64).reshape(2, 8, 4, 8),
    "one of a row": lambda x: x.select(2, 3).unsqueeze(2).unsqueeze(3).expand(2, 8, 4, 8).clone(),
    "rounded": lambda x: x.unsqueeze(2).expand(2, 8, 4, 8).to(torch.float64).float(),
    "computed": lambda x: (x.unsqueeze(2).expand(2, 8, 4, 8) * 2).cos().contiguous(),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("made", MADE)
def test_what_the_backward_makes_again_of_a_copy(made: str, layout: str) -> None:
    def f(x: Any, w: Any) -> Any:
        return (MADE[made](x) * w).sin().sum()

    def step(function: Any, n: int) -> tuple[Any, Any]:
        generator = torch.Generator().manual_seed(n)
        rows = torch.randn(2, n, generator=generator)
        w = torch.randn(2, 8, 4, 8, generator=generator).requires_grad_()
        loss = function(LAYOUTS[layout](rows), w)
        rows.zero_()  # autograd has saved none of it
        loss.backward()
        return loss.detach(), w.grad

    run = jit(f)
    for n in (144, 144, 150, 161):
        torch.testing.assert_close(step(run, n), step(f, n))
    assert not {"FB303", "FB306"} & {note.code for note in run.report().notes}
