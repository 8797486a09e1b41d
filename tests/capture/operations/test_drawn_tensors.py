"""Tensors drawn by a `torch.Generator` of the program's."""

from __future__ import annotations

import torch
from torch import nn

from graftjit import jit

from ..harness import agrees, t


@agrees(breaks=0, backward=True)
def test_draws_with_a_generator_of_the_model():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.generator = torch.Generator().manual_seed(1)
            self.project = nn.Linear(4, 4)

        def forward(self, x):
            order = torch.rand(*x.shape[:2], generator=self.generator).argsort(1)
            kept = order[:, : x.shape[1] // 2, None].expand(-1, -1, x.shape[2])
            noise = torch.empty_like(x).normal_(0, 0.1, generator=self.generator)
            y = torch.gather(self.project(x + noise), 1, kept)
            return y, torch.randperm(4, generator=self.generator), torch.rand(2)

    model = Masked()
    return model, (t(2, 6, 4),), [
        lambda *_: None, lambda *_: model.generator.manual_seed(5) is None,
        lambda *_: setattr(model, "generator", torch.Generator().manual_seed(7)),
    ]  # fmt: skip


@agrees(breaks=0)
def test_generators_that_the_frame_makes():
    def sample(x, seed):
        generator = torch.Generator(x.device).manual_seed(seed)
        for _ in range(3):
            x = x - 0.1 * torch.randn(x.shape, generator=generator)
        return x, torch.rand(2, generator=generator)

    return sample, (t(3), 0), [lambda *_: (t(3), 0), lambda *_: (t(3), 1)]


def randn_tensor(shape, generator, device, dtype):
    """As diffusers draws latents."""
    several = isinstance(generator, list)
    kind = (generator[0] if several else generator).device.type
    place = "cpu" if kind == "cpu" else device
    if not several:
        return torch.randn(shape, generator=generator, device=place, dtype=dtype).to(device)
    one = (1, *shape[1:])
    drawn = [torch.randn(one, generator=g, device=place, dtype=dtype) for g in generator]
    return torch.cat(drawn, dim=0).to(device)


@agrees(breaks=0)
def test_latents_of_a_pipeline():
    def f(x, generator):
        return x * 0.5 + randn_tensor(x.shape, generator, x.device, x.dtype)

    def seeded(*seeds):
        return [torch.Generator().manual_seed(seed) for seed in seeds]

    return f, (t(2, 3), seeded(1)[0]), [
        lambda _: (t(2, 3), seeded(2)[0]), lambda _: (t(2, 3), seeded(1, 2)),
        lambda _: (t(2, 3), seeded(3, 4)),
    ]  # fmt: skip


@agrees(breaks=0)
def test_tensors_that_a_generator_fills():
    generator = torch.Generator().manual_seed(1)

    def f(x, w):
        y = torch.empty(5, 8).t()
        y.normal_(generator=generator)
        z = torch.zeros(6, 6)
        z[::2, 1:].exponential_(generator=generator)
        w.uniform_(-1, 1, generator=generator)
        whole = torch.empty(3, dtype=torch.long).random_(0, 5, generator=generator)
        return x[0] + y, z, w * 2, whole

    return f, (t(2), t(40))


@agrees(breaks=0)
def test_one_generator_under_two_names():
    one, two = torch.Generator().manual_seed(0), torch.Generator().manual_seed(1)

    def f(x, a, b):
        y = torch.rand(3, generator=a)
        z = torch.rand(3, generator=b)
        return x + y * z, torch.rand(2, generator=a)

    return f, (t(3), one, two), [lambda *_: (t(3), one, one), lambda *_: (t(3), two, one)]


@agrees()
def test_the_default_generator_as_an_argument():
    own = torch.Generator().manual_seed(0)

    def f(x, generator):
        first = torch.rand(3)
        return x + torch.rand(3, generator=generator) * first, torch.rand(3)

    torch.manual_seed(3)
    return f, (t(3), own), [
        lambda *_: (t(3), torch.default_generator), lambda *_: (t(3), None), lambda *_: (t(3), own),
    ]  # fmt: skip


@agrees()
def test_a_program_that_raises_draws_the_same_again():
    generator = torch.Generator().manual_seed(2)

    def f(x, at):
        noise = torch.rand(4, generator=generator)
        y = noise[at] * x
        if (y > 100).any():
            raise ValueError("large")
        return y

    at = torch.tensor([0, 1, 2])
    return f, (t(3), at), [
        lambda *_: (t(3) + 1e4, at), lambda *_: (t(3), at + 9), lambda *_: (t(3), at),
    ]  # fmt: skip


@agrees()
def test_draws_that_depend_on_data_or_run_in_a_transform_are_breaks():
    generator = torch.Generator().manual_seed(2)

    def f(x):
        kept = torch.bernoulli(x.sigmoid(), generator=generator)
        chosen = torch.multinomial(x.softmax(-1), 1, generator=generator)
        rows = torch.func.vmap(lambda row: row * 2)(x)
        return kept, chosen, rows * torch.rand(3, generator=generator)

    return f, (t(2, 3),)


def test_a_generator_is_not_kept_alive():
    @jit
    def f(x, generator):
        return x + torch.rand(3, generator=generator)

    for seed in (0, 1):
        generator = torch.Generator().manual_seed(seed)
        wanted = t(3) + torch.rand(3, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(f(t(3), generator), wanted)
    assert f.report().recompile_count == 0
