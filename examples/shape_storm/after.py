"""Attention that computes its mask anew: fused with what reads it, and one graph for all lengths."""

import torch

import graftjit


class Attention(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = torch.nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        at = torch.arange(x.shape[1])
        scores = scores.masked_fill(at > at[:, None], -torch.inf)
        return scores.softmax(dim=-1) @ v


def make() -> torch.nn.Module:
    torch.manual_seed(0)
    return Attention(32).requires_grad_(False)


def calls() -> list[tuple]:
    """Sentences of 12 lengths."""
    random = torch.Generator().manual_seed(1)
    lengths = [5, 9, 12, 7, 16, 11, 20, 14, 6, 18, 13, 8, 5, 9, 12, 7]
    return [(torch.randn(4, length, 32, generator=random),) for length in lengths]


if __name__ == "__main__":
    attend = graftjit.compile(make())
    for (x,) in calls():
        attend(x)
    graftjit.report(attend).show()
