"""Modules under `fully_shard` (FSDP2), in eager mode and compiled: what both ranks run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

import graftjit

STEPS = 4
BLOCKS = 3
POLICY = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
T = torch.Tensor


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: T) -> T:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, again: bool) -> None:
        super().__init__()
        self.again = again
        self.table = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.last = nn.Linear(8, 20)

    def forward(self, tokens: T) -> T:
        x = self.table(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.last(x) * 1


class Reports:
    """Of compiled callables, by what they are."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def note(self, made: Any) -> Any:
        self.made.append(made)
        return made

    def told(self) -> list[tuple[int, list[str], int]]:
        """(graphs, codes of breaks and of frames in plain Python, recompiles) of each."""
        found = [one.report() for one in self.made]
        graphs = [sum(frame.graphs for frame in one.frames) for one in found]
        return [
            (n, [b.code for b in (*one.breaks, *_plain(one))], len(one.recompiles))
            for n, one in zip(graphs, found, strict=True)
        ]


def _plain(report: Any) -> list[Any]:
    return [note for note in report.notes if note.plain]


def net(again: bool = False) -> Net:
    torch.manual_seed(0)
    return Net(again)


def sharded(model: Net, **options: Any) -> Net:
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)
    return model


def blocks_compiled(model: Net, reports: Reports) -> Net:
    for at, block in enumerate(model.blocks):
        model.blocks[at] = reports.note(graftjit.compile(block))
    return model


def whole(reports: Reports) -> Any:
    return reports.note(graftjit.compile(sharded(net())))


def before(reports: Reports) -> Any:
    return sharded(blocks_compiled(net(), reports))


def after(reports: Reports) -> Any:
    return blocks_compiled(sharded(net()), reports)


def around_checkpoints(reports: Reports) -> Any:
    return blocks_compiled(sharded(net(again=True)), reports)


def forwards(reports: Reports) -> Any:
    model = sharded(net())
    for block in model.blocks:
        block.forward = reports.note(graftjit.jit(block.forward))
    return model


def mixed(reports: Reports) -> Any:
    return blocks_compiled(sharded(net(), mp_policy=POLICY), reports)


EAGER: dict[str, Callable[[], Net]] = {
    "around_checkpoints": lambda: sharded(net(again=True)),
    "mixed": lambda: sharded(net(), mp_policy=POLICY),
}
OURS: dict[str, Callable[[Reports], Any]] = {
    one.__name__: one for one in (whole, before, after, around_checkpoints, forwards, mixed)
}


def trained(model: Any) -> tuple[list[float], list[T]]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for number in range(STEPS):
        generator = torch.Generator().manual_seed(10 * number + distributed.get_rank())
        tokens = torch.randint(0, 20, (2, 6), generator=generator)
        out = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(out.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [one.full_tensor().detach() for one in model.parameters()]


def all_of_them() -> dict[str, Any]:
    """By name: (eager's results, ours, what the reports of ours tell)."""
    found = {}
    for name, make in OURS.items():
        eager = trained(EAGER.get(name, lambda: sharded(net()))())
        reports = Reports()
        found[name] = eager, trained(make(reports)), reports.told()
        graftjit.reset()
        distributed.barrier()
    return found
