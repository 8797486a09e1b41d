"""A model that changes with each call: it centres its input by the mean of all that it has seen, and the program
around it turns its temperature down.

A compiler that read the attributes once would go on with the first ones. Here each call sees what is there: what the
temperature costs is nothing, for it becomes an input of the graph; what the growing list costs, the report says.
"""

import torch

import graftjit


class Centred(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(64, 500)
        self.temperature = 1.0
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x.mean(dim=0))
        centre = torch.stack(self.seen).mean(dim=0)
        return (self.head(x - centre) / self.temperature).softmax(dim=-1)


def make() -> torch.nn.Module:
    torch.manual_seed(0)
    return Centred().requires_grad_(False)


def calls() -> list[tuple]:
    random = torch.Generator().manual_seed(1)
    return [(torch.randn(16, 64, generator=random),) for _ in range(20)]


def between(model: torch.nn.Module, number: int) -> None:
    """What the program does before each call."""
    model.temperature = 1.0 - 0.02 * number


if __name__ == "__main__":
    centred = graftjit.compile(make())
    for number, (x,) in enumerate(calls()):
        between(centred, number)
        centred(x)
    graftjit.report(centred).show()
