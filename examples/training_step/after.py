"""A step of training, compiled whole: forward, backward, gradients clipped, Adam, and a look at the loss.

The loop looks at the loss that the step returns."""

import torch

import graftjit


class Trainer:
    def __init__(self) -> None:
        self.model = torch.nn.Sequential(
            torch.nn.Linear(32, 128),
            torch.nn.GELU(),
            torch.nn.LayerNorm(128),
            torch.nn.Linear(128, 10),
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def step(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self.model(x), target)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()


def make():
    torch.manual_seed(0)
    return Trainer().step


def calls() -> list[tuple]:
    random = torch.Generator().manual_seed(1)
    return [
        (torch.randn(64, 32, generator=random), torch.randint(10, (64,), generator=random))
        for _ in range(20)
    ]


if __name__ == "__main__":
    step = graftjit.jit(make())
    for x, target in calls():
        loss = step(x, target)
        if loss > 100:
            print("a large loss:", loss.item())
    step.report().show()
