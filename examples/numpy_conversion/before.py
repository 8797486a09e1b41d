"""A denoiser that is told the time as waves: numpy makes them, of the times in a tensor."""

import numpy as np
import torch

import graftjit


class Denoiser(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frequencies = np.geomspace(1.0, 1000.0, 32, dtype=np.float32)
        self.first = torch.nn.Linear(32 + 64, 256)
        self.second = torch.nn.Linear(256, 32)

    def forward(self, x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        phases = np.multiply.outer(times.numpy(), self.frequencies)
        waves = torch.from_numpy(np.concatenate([np.sin(phases), np.cos(phases)], axis=1))
        hidden = torch.nn.functional.silu(self.first(torch.cat([x, waves], dim=1)))
        return x - self.second(hidden)


def make() -> torch.nn.Module:
    torch.manual_seed(0)
    return Denoiser().requires_grad_(False)


def calls() -> list[tuple]:
    random = torch.Generator().manual_seed(1)
    return [
        (torch.randn(256, 32, generator=random), torch.rand(256, generator=random))
        for _ in range(20)
    ]


if __name__ == "__main__":
    denoise = graftjit.compile(make())
    for x, times in calls():
        denoise(x, times)
    graftjit.report(denoise).show()
