"""Programs with Python in them, beside eager: `python -m benchmarks.python_programs [NAME...]`.

Twelve programs as users write them: branches on data, random numbers of Python, loops until
something holds, lists that grow. Each runs in plain Python and jitted, some calls of one after some
calls of the other, with the same seeds. The table has the processor time of both (compilers
included), and two ratios: of the calls after the first second, and of all calls.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import math
import random
import resource
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import graftjit

SECOND = 1.0  # wall time of the jitted calls that the first ratio leaves out
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
Program = Callable[[Wrap], Callable[[int], Any]]  # (jit or nothing) -> what one call does


def augmentation(jit: Wrap) -> Callable[[int], Any]:
    images = torch.rand(16, 3, 64, 64)

    @jit
    def augment(image: torch.Tensor) -> torch.Tensor:
        if random.random() < 0.5:
            image = image.flip(-1)
        image = image * random.uniform(0.8, 1.2) + random.uniform(-0.1, 0.1)
        grey = image.mean(0, keepdim=True)
        image = grey + (image - grey) * random.uniform(0.5, 1.5)
        top, left = random.randint(0, 8), random.randint(0, 8)
        image = image[:, top : top + 56, left : left + 56]
        return image.clamp(0, 1)

    return lambda call: torch.stack([augment(image) for image in images[:4]])


def episode(jit: Wrap) -> Callable[[int], Any]:
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)

    def pushed(state: list[float], action: int) -> list[float]:
        x, v, angle, turn = state
        force = 1.0 if action else -1.0
        turn += 0.02 * (9.8 * math.sin(angle) - force * math.cos(angle))
        return [x + 0.02 * v, v + 0.02 * force, angle + 0.02 * turn, turn]

    @jit
    def play() -> torch.Tensor:
        state, chances, rewards = [0.0, 0.0, random.uniform(-0.05, 0.05), 0.0], [], []
        for _ in range(20):
            choice = torch.distributions.Categorical(logits=policy(torch.tensor(state)))
            action = choice.sample()
            chances.append(choice.log_prob(action))
            state = pushed(state, int(action.item()))
            rewards.append(1.0 - abs(state[2]))
            if abs(state[2]) > 0.2:
                break
        returns, total = [], 0.0
        for reward in reversed(rewards):
            total = reward + 0.99 * total
            returns.insert(0, total)
        loss = -(torch.stack(chances) * torch.tensor(returns)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lambda call: play()


def beam_search(jit: Wrap) -> Callable[[int], Any]:
    embed, cell, out = nn.Embedding(200, 64), nn.GRUCell(64, 64), nn.Linear(64, 200)

    @torch.no_grad()
    @jit
    def search(start: torch.Tensor, width: int = 4, steps: int = 8) -> tuple[list[int], float]:
        beams = [([1], 0.0, start)]
        for _ in range(steps):
            found = []
            for tokens, score, hidden in beams:
                if tokens[-1] == 2:
                    found.append((tokens, score, hidden))
                    continue
                hidden = cell(embed(torch.tensor([tokens[-1]])), hidden)
                scores, ids = torch.log_softmax(out(hidden)[0], -1).topk(width)
                for one, token in zip(scores.tolist(), ids.tolist(), strict=True):
                    found.append(([*tokens, token], score + one, hidden))
            beams = sorted(found, key=lambda beam: beam[1], reverse=True)[:width]
        return beams[0][0], beams[0][1]

    return lambda call: search(torch.randn(1, 64))


def early_exit(jit: Wrap) -> Callable[[int], Any]:
    class Exits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(6))
            self.heads = nn.ModuleList(nn.Linear(128, 10) for _ in range(6))
            self.limit = 0.16

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
            depth = 0
            for layer, head in zip(self.layers, self.heads, strict=True):
                x = torch.relu(layer(x))
                chances = head(x).softmax(-1)
                if chances.max().item() > self.limit:
                    break
                depth += 1
            return chances, depth

    model = Exits().eval()
    run = torch.no_grad()(jit(model.forward))
    return lambda call: run(torch.randn(8, 128) * random.uniform(0.5, 2.0))


def suppression(jit: Wrap) -> Callable[[int], Any]:
    def overlap(box: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        low, high = torch.maximum(box[:2], boxes[:, :2]), torch.minimum(box[2:], boxes[:, 2:])
        inside = (high - low).clamp(min=0).prod(1)
        areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
        return inside / ((box[2:] - box[:2]).prod() + areas - inside)

    @jit
    def keep(boxes: torch.Tensor, scores: torch.Tensor, limit: float) -> torch.Tensor:
        order, kept = scores.argsort(descending=True), []
        while order.numel() > 0:
            first = order[0]
            kept.append(first)
            order = order[1:]
            order = order[overlap(boxes[first], boxes[order]) <= limit]
        return torch.stack(kept)

    def call(at: int) -> torch.Tensor:
        corner = torch.rand(random.randint(10, 60), 2) * 100
        boxes = torch.cat([corner, corner + 20 + 40 * torch.rand_like(corner)], 1)
        return keep(boxes, torch.rand(len(boxes)), 0.3)

    return call


@dataclasses.dataclass
class World:
    where: torch.Tensor
    speed: torch.Tensor
    time: float = 0.0
    steps: int = 0


def particles(jit: Wrap) -> Callable[[int], Any]:
    world = World(torch.rand(256, 2), torch.randn(256, 2) * 0.1)

    @jit
    def advance(world: World) -> float:
        fastest = world.speed.norm(dim=1).max().item()
        dt = min(0.02, 0.01 / max(fastest, 1e-3))
        wind = 0.05 * math.sin(world.time)
        world.speed[:, 1] -= 0.1 * dt
        world.speed[:, 0] += wind * dt
        world.where = world.where + world.speed * dt
        outside = (world.where < 0) | (world.where > 1)
        world.speed = torch.where(outside, -0.9 * world.speed, world.speed)
        world.where = world.where.clamp(0, 1)
        world.time += dt
        world.steps += 1
        return world.time

    return lambda call: advance(world)


def clusters(jit: Wrap) -> Callable[[int], Any]:
    @jit
    def kmeans(points: torch.Tensor, k: int, limit: float = 1e-3) -> tuple[torch.Tensor, int]:
        centres = points[random.sample(range(len(points)), k)]
        steps = 0
        while steps < 20:
            steps += 1
            nearest = torch.cdist(points, centres).argmin(1)
            fresh = []
            for at in range(k):
                mine = points[nearest == at]
                fresh.append(mine.mean(0) if len(mine) > 0 else centres[at])
            moved = (torch.stack(fresh) - centres).norm().item()
            centres = torch.stack(fresh)
            if moved < limit:
                break
        return centres, steps

    return lambda call: kmeans(torch.randn(300, 2) + torch.randint(0, 3, (300, 1)) * 3, 3)


def merges(jit: Wrap) -> Callable[[int], Any]:
    ranks = {(a, b): (a * 7 + b * 13) % 50 for a in range(12) for b in range(12) if (a + b) % 3}

    @jit
    def tokenize(ids: torch.Tensor) -> torch.Tensor:
        while True:
            pairs = list(zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True))
            known = [pair for pair in pairs if pair in ranks]
            if not known:
                return ids
            best = min(known, key=lambda pair: ranks[pair])
            at = pairs.index(best)
            joined = torch.tensor([12 + ranks[best]])
            ids = torch.cat([ids[:at], joined, ids[at + 2 :]])

    return lambda call: tokenize(torch.randint(0, 12, (random.randint(8, 24),)))


def adaptive_step(jit: Wrap) -> Callable[[int], Any]:
    field = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))

    @torch.no_grad()
    @jit
    def integrate(y: torch.Tensor, end: float = 1.0, limit: float = 1e-3) -> tuple[Any, int]:
        t, dt, steps = 0.0, 0.3, 0
        while t < end:
            dt = min(dt, end - t)
            k1 = field(y)
            k2 = field(y + dt * k1)
            error = (dt * (k2 - k1) / 2).abs().max().item()
            if error < limit:
                y, t = y + dt * (k1 + k2) / 2, t + dt
            dt *= min(2.0, max(0.3, 0.9 * math.sqrt(limit / max(error, 1e-9))))
            steps += 1
        return y, steps

    return lambda call: integrate(torch.randn(16, 8))


def replay(jit: Wrap) -> Callable[[int], Any]:
    net, target = nn.Linear(8, 4), nn.Linear(8, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    memory: collections.deque[Any] = collections.deque(maxlen=500)
    rate = {"explore": 1.0}

    @jit
    def learn(state: torch.Tensor) -> Any:
        if random.random() < rate["explore"]:
            action = random.randrange(4)
        else:
            action = int(net(state).argmax())
        rate["explore"] = max(0.05, rate["explore"] * 0.995)
        memory.append((state, action, random.random(), torch.randn(8)))
        if len(memory) < 16:
            return None
        states, actions, rewards, after = zip(*random.sample(list(memory), 16), strict=True)
        wanted = torch.tensor(rewards) + 0.9 * target(torch.stack(after)).max(1).values.detach()
        got = net(torch.stack(states)).gather(1, torch.tensor(actions)[:, None])[:, 0]
        loss = F.smooth_l1_loss(got, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return lambda call: learn(torch.randn(8))


def penalty(jit: Wrap) -> Callable[[int], Any]:
    judge = nn.Sequential(
        nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)
    )
    optimizer = torch.optim.Adam(judge.parameters(), lr=1e-4)
    score = jit(judge.forward)

    def call(at: int) -> float:
        real, fake = torch.randn(32, 16), torch.randn(32, 16) + 1
        between = torch.lerp(real, fake, random.random()).requires_grad_()
        (slope,) = torch.autograd.grad(score(between).sum(), between, create_graph=True)
        loss = score(fake).mean() - score(real).mean() + ((slope.norm(dim=1) - 1) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return call


def averages(jit: Wrap) -> Callable[[int], Any]:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history: dict[str, Any] = {"loss": None, "best": math.inf, "bad": 0, "seen": 0}

    @jit
    def step(x: torch.Tensor, y: torch.Tensor, at: int) -> float:
        warm = min(1.0, (at + 1) / 100)
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * warm * 0.5 * (1 + math.cos(math.pi * at / 5000))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            optimizer.step()
        value, old = loss.item(), history["loss"]
        history["loss"] = value if old is None else 0.98 * old + 0.02 * value
        history["seen"] += len(x)
        if history["loss"] < history["best"] - 1e-4:
            history["best"], history["bad"] = history["loss"], 0
        else:
            history["bad"] += 1
        return history["loss"]

    return lambda call: step(torch.randn(16, 32), torch.randint(0, 10, (16,)), call)


PROGRAMS: dict[str, Program] = {
    one.__name__: one
    for one in (
        augmentation, episode, beam_search, early_exit, suppression, particles, clusters, merges,
        adaptive_step, replay, penalty, averages,
    )
}  # fmt: skip


def cpu() -> float:
    """Processor seconds of this process and of the compilers that it has waited for."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)


@dataclasses.dataclass
class Times:
    """Processor seconds of calls: of all, and of those after the first second."""

    total: float = 0.0
    late: float = 0.0

    def add(self, spent: float, late: bool) -> None:
        self.total += spent
        self.late += spent if late else 0.0


def seeded(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)


def made(program: Program, jit: Wrap, seed: int) -> Callable[[int], Any]:
    seeded(seed)
    return program(jit)


def measure(name: str, calls: int, seed: int, block: int) -> tuple[Times, Times, Any]:
    """The times in plain Python and jitted, and the reports' lines."""
    graftjit.reset()
    functions: list[Any] = []

    def jit(function: Callable[..., Any]) -> Callable[..., Any]:
        functions.append(graftjit.jit(function))
        return functions[-1]

    program = PROGRAMS[name]
    runs = [made(program, lambda function: function, seed), made(program, jit, seed)]
    times, wall = (Times(), Times()), 0.0
    for start in range(0, calls, block):
        late = wall > SECOND
        for which, run in enumerate(runs):
            seeded(seed + start)
            began, wall_began = cpu(), time.perf_counter()
            for at in range(start, start + block):
                run(at)
            times[which].add(cpu() - began, late)
            wall += (time.perf_counter() - wall_began) * which
    return *times, functions


def told(functions: list[Any]) -> str:
    seen = [graftjit.report(one) for one in functions]
    graphs, again = sum(r.graph_count for r in seen), sum(r.recompile_count for r in seen)
    codes = collections.Counter(row.code for r in seen for row in (*r.breaks, *r.notes))
    return f"{graphs} graphs, {again} recompiles; " + ", ".join(sorted(codes))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", choices=[[], *PROGRAMS], default=[])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--block", type=int, default=10, help="calls between two changes of sides")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", action="store_true", help="print the whole reports, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"seed {options.seed}, {options.calls} calls, torch {torch.__version__}, one thread")
    print("| program | eager | graftjit | later / eager | all / eager | made |")
    print("|---|---:|---:|---:|---:|---|")
    for name in options.names or PROGRAMS:
        plain, ours, functions = measure(name, options.calls, options.seed, options.block)
        later = f"{ours.late / plain.late:.2f}" if plain.late else "-"
        print(
            f"| {name} | {plain.total:.2f} s | {ours.total:.2f} s | {later} |"
            f" {ours.total / plain.total:.2f} | {told(functions)} |",
            flush=True,
        )
        if options.report:
            print(*(graftjit.report(one) for one in functions), sep="\n")


if __name__ == "__main__":
    main()
