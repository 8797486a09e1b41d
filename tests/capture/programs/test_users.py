"""Programs as users of torch write them: loops of training and of decoding, caches, batches, wrappers."""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import dataclasses
import functools
import math
import os
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from ..harness import agrees


def seeded(made):
    torch.manual_seed(0)
    return made()


@agrees(backward=False)
def test_a_training_loop_of_many_steps():
    net = seeded(lambda: nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    ema = copy.deepcopy(net)

    def f(x, y, log):
        for epoch in range(2):
            for xb, yb in zip(x.split(2), y.split(2), strict=True):
                optimizer.zero_grad()
                loss = F.mse_loss(net(xb), yb)
                loss.backward()
                norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                with torch.no_grad():
                    for slow, fast in zip(ema.parameters(), net.parameters(), strict=True):
                        slow.lerp_(fast, 0.1)
                log.append(round(loss.item(), 4))
            schedule.step()
        return norm, log, schedule.get_last_lr(), [p.detach().clone() for p in ema.parameters()]

    return f, (torch.arange(12.0).reshape(4, 3) / 10, torch.ones(4, 1), [])


@agrees(grad=False)
def test_decoding_with_a_cache():
    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(4, 12)
            self.cache = None

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            if self.cache is not None:
                k = torch.cat([self.cache[0], k], 1)
                v = torch.cat([self.cache[1], v], 1)
            self.cache = (k, v)
            return F.scaled_dot_product_attention(q, k, v)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(7, 4)
            self.layers = nn.ModuleList([Attend(), Attend()])
            self.head = nn.Linear(4, 7, bias=False)

        def forward(self, tokens):
            x = self.embed(tokens)
            for layer in self.layers:
                x = x + layer(x)
            return self.head(x)

        def reset(self):
            for layer in self.layers:
                layer.cache = None

    model = seeded(Model).eval()

    def f(prompt, n):
        model.reset()
        out = list(prompt[0].tolist())
        logits = model(prompt)
        while len(out) < n:
            token = int(logits[0, -1].argmax())
            out.append(token)
            if token == 99:
                break
            logits = model(torch.tensor([[token]]))
        return out, model.layers[0].cache[0].shape

    return f, (torch.tensor([[1, 2, 3]]), 8)


@agrees(grad=False)
def test_beam_search():
    table = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.3, 0.3, 0.4]]).log()

    def f(x, width):
        beams = [([0], 0.0)]
        for _ in range(3):
            grown = []
            for tokens, score in beams:
                row = table[tokens[-1]]
                values, indices = row.topk(width)
                for v, i in zip(values.tolist(), indices.tolist(), strict=True):
                    grown.append((tokens + [i], score + v))
            beams = sorted(grown, key=lambda b: -b[1])[:width]
        best, score = max(beams, key=lambda b: b[1])
        return x * len(best), best, round(score, 4)

    return f, (torch.ones(2), 2)


@agrees(grad=False)
def test_recurrent_code_by_hand():
    cell = seeded(lambda: nn.GRUCell(3, 4))

    def f(x, lengths):
        h = torch.zeros(x.shape[0], 4)
        outputs, states = [], {}
        for t, step in enumerate(x.unbind(1)):
            alive = (lengths > t).unsqueeze(-1)
            h = torch.where(alive, cell(step, h), h)
            outputs.append(h)
            states[t] = h.sum()
        return torch.stack(outputs, 1), {k: v for k, v in states.items() if k % 2}

    return f, (torch.arange(24.0).reshape(2, 4, 3) / 9, torch.tensor([2, 4]))


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor
    meta: dict = dataclasses.field(default_factory=dict)

    def to(self, dtype):
        return dataclasses.replace(self, x=self.x.to(dtype), y=self.y.to(dtype))

    def __len__(self):
        return len(self.x)

    def __iter__(self):
        return iter((self.x, self.y))


class Loader:
    def __init__(self, data, size):
        self.data, self.size, self.epochs = data, size, 0

    def __iter__(self):
        self.epochs += 1
        for start in range(0, len(self.data), self.size):
            chunk = self.data[start : start + self.size]
            yield Batch(chunk, chunk * 2, {"start": start})

    def __len__(self):
        return math.ceil(len(self.data) / self.size)


@agrees(grad=False)
def test_batches_and_loaders():
    def f(loader):
        total, sizes = torch.zeros(2), []
        for i, batch in enumerate(loader):
            x, y = batch.to(torch.float64)
            total = total + (x * y).sum(0)
            sizes.append((len(batch), batch.meta["start"], i + 1 == len(loader)))
        return total, sizes, loader.epochs

    return f, (Loader(torch.arange(10.0).reshape(5, 2), 2),)


def timed(log):
    def decorate(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            start = time.perf_counter()
            try:
                return fn(*args, **kwargs)
            finally:
                log.append((fn.__name__, time.perf_counter() >= start))

        wrapper.calls = 0
        return wrapper

    return decorate


@agrees(grad=False)
def test_wrappers_memo_tables_and_defaults():
    log = []
    memo = {}

    def positions(n, dim):
        key = (n, dim)
        if key not in memo:
            angles = torch.arange(n).unsqueeze(1) / (10 ** (torch.arange(0, dim, 2) / dim))
            memo[key] = torch.cat([angles.sin(), angles.cos()], -1)
        return memo[key]

    def collect(item, seen=[]):  # noqa: B006
        seen.append(item)
        return list(seen)

    @timed(log)
    def scaled(x, *, by=2.0, **rest):
        return x * by, sorted(rest)

    def f(x, **options):
        x = x + positions(x.shape[0], x.shape[1])
        y, rest = scaled(x, **options)
        scaled.calls += 1
        return y, rest, collect(scaled.calls), list(log), sorted(memo)

    return (
        lambda x, o: f(x, **o),
        (torch.zeros(3, 4), {"by": 3, "z": 1}),
        [
            lambda: (torch.zeros(2, 4), {}),
            lambda: (torch.zeros(3, 4), {"a": 1}),
        ],
    )


@agrees(grad=False)
def test_modules_that_are_wrapped_and_changed():
    from torch.nn.utils import parametrizations, parametrize
    from torch.utils.hooks import RemovableHandle

    RemovableHandle.next_id = 0  # the world is made twice, and these are keys in it

    class Symmetric(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).transpose(-1, -2)

    layer = seeded(lambda: nn.Linear(3, 3))
    normed = parametrizations.weight_norm(nn.Linear(3, 3))
    nn.init.constant_(normed.bias, 0.5)
    parametrize.register_parametrization(layer, "weight", Symmetric())

    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.gain = 2

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

        def forward(self, x):
            return self.inner(x) * self.gain

    w = Wrapper(layer)

    def f(x):
        return w(x), normed(x), w.in_features, parametrize.is_parametrized(layer), w.weight

    def change():
        w.gain = 3

    def swap():
        w.inner = nn.Identity()
        w.inner.in_features, w.inner.weight = 9, None
        parametrize.remove_parametrizations(layer, "weight")

    return f, (torch.ones(2, 3),), [lambda: change(), lambda: (torch.ones(1, 3),), lambda: swap()]


@agrees(grad=False)
def test_a_tree_network():
    combine = seeded(lambda: nn.Bilinear(3, 3, 3))

    def encode(tree):
        if isinstance(tree, tuple):
            left, right = map(encode, tree)
            return torch.tanh(combine(left, right))
        return F.one_hot(torch.tensor([tree]), 3).float()

    def f(tree, depth):
        return encode(tree), depth

    return f, (((0, 1), (2, (1, 0))), 3), [lambda: (((0, 1), 2), 2), lambda: (1, 0)]


@agrees(grad=False)
def test_messages_on_a_graph():
    lin = seeded(lambda: nn.Linear(4, 2))

    def f(h, edges):
        src, dst = edges
        messages = lin(torch.cat([h[src], h[dst]], -1)).relu()
        gathered = torch.zeros_like(h).index_add_(0, dst, messages)
        degree = torch.bincount(dst, minlength=h.shape[0]).clamp(min=1)
        return gathered / degree[:, None], h.scatter(0, src[:1, None].expand(-1, 2), 7.0)

    return f, (torch.arange(6.0).reshape(3, 2), torch.tensor([[0, 1, 2], [1, 2, 1]]))


@agrees()
def test_custom_autograd_and_checkpoints():
    from torch.utils.checkpoint import checkpoint

    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, limit):
            ctx.save_for_backward(x)
            ctx.limit = limit
            return x.clamp(-limit, limit)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * (x.abs() <= ctx.limit), None

    net = seeded(lambda: nn.Linear(2, 2))

    def f(x):
        y = Clip.apply(net(x), 0.5)
        z = checkpoint(lambda v: torch.sin(v) * 2, y, use_reentrant=False)
        loss = z.sum()
        net.zero_grad()
        (gx,) = torch.autograd.grad(loss, [x], retain_graph=True)
        loss.backward()
        return loss, gx, net.weight.grad.clone()

    return f, (torch.tensor([[0.1, 2.0], [3.0, -1.0]], requires_grad=True),)


@agrees(grad=False)
def test_settings_from_outside():
    os.environ["VARIED"] = "3"
    args = argparse.Namespace(scale=2.0, layers=[1, 2], name="run")

    def f(x):
        k = int(os.environ.get("VARIED", "1"))
        path = pathlib.PurePath("a") / "b.txt"
        for width in args.layers:
            x = x * args.scale + width * k
        return (
            x,
            path.suffix,
            path.stem,
            getattr(args, "missing", None),
            "scale" in args,
            vars(args),
        )

    def env():
        os.environ["VARIED"] = "5"

    def more():
        args.layers.append(4)
        args.scale = 0.5
        del os.environ["VARIED"]

    return f, (torch.ones(2),), [lambda: env(), lambda: (torch.zeros(2),), lambda: more()]


@agrees(grad=False)
def test_arrays_beside_tensors():
    rng = np.random.default_rng(0)
    table = rng.standard_normal((3, 2)).astype(np.float32)

    def f(x, xs):
        w = torch.from_numpy(table)
        a = np.asarray(xs) * 2
        b = torch.as_tensor(a)
        mean, std = a.mean(), a.std().item()
        c = x.numpy() @ table
        table[0, 0] += 1
        return (
            x @ w,
            b,
            float(mean),
            std,
            c,
            a.argmax(),
            np.float32(1.5) * x,
            x * np.pi,
            int(np.prod(x.shape)),
            torch.tensor(a.tolist()),
        )

    return f, (torch.ones(2, 3), [1, 2, 3])


@agrees(grad=False)
def test_running_statistics_and_early_stopping():
    class Stopper:
        def __init__(self, patience):
            self.best, self.bad, self.patience = math.inf, 0, patience
            self.history = collections.deque(maxlen=3)

        def __call__(self, loss):
            self.history.append(round(loss, 3))
            if loss < self.best - 1e-3:
                self.best, self.bad = loss, 0
            else:
                self.bad += 1
            return self.bad >= self.patience

    norm = nn.BatchNorm1d(2)
    stop = Stopper(2)

    def f(x):
        steps = 0
        while True:
            steps += 1
            y = norm(x * steps)
            if stop(float(y.abs().mean()) + 1 / steps) or steps > 6:
                break
        return (
            steps,
            stop.best,
            list(stop.history),
            norm.running_mean.clone(),
            int(norm.num_batches_tracked),
        )

    return f, (torch.arange(6.0).reshape(3, 2),)


@agrees(grad=False)
def test_hooks_that_collect():
    net = seeded(lambda: nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)))

    @contextlib.contextmanager
    def features(*names):
        found, handles = {}, []
        for name, module in net.named_modules():
            if name in names:
                keep = lambda m, a, out, name=name: found.__setitem__(name, out)  # noqa: E731
                handles.append(module.register_forward_hook(keep))
        try:
            yield found
        finally:
            for handle in handles:
                handle.remove()

    def f(x):
        with features("0", "2") as found:
            y = net(x)
        return y, sorted(found), found["0"], len(net[0]._forward_hooks)

    return f, (torch.ones(1, 2),)


@agrees(grad=False)
def test_shapes_dtypes_and_devices_asked():
    def flatten(tree, prefix=""):
        if isinstance(tree, torch.Tensor):
            yield prefix, tree
        elif isinstance(tree, dict):
            for key in sorted(tree):
                yield from flatten(tree[key], f"{prefix}.{key}" if prefix else key)
        elif isinstance(tree, (list, tuple)):
            for i, item in enumerate(tree):
                yield from flatten(item, f"{prefix}[{i}]")

    def f(tree):
        report = [
            f"{n}: {tuple(t.shape)} {str(t.dtype)[6:]} {t.device.type}" for n, t in flatten(tree)
        ]
        count = sum(t.numel() * t.element_size() for _, t in flatten(tree))
        joined = torch.cat([t.reshape(-1).to(torch.float32) for _, t in flatten(tree)])
        kinds = collections.Counter(t.dtype for _, t in flatten(tree))
        promoted = torch.promote_types(*sorted(kinds, key=str)[:2])
        return (
            report,
            count,
            joined,
            promoted,
            torch.finfo(torch.float32).max,
            torch.iinfo(torch.int8).min,
        )

    return f, (
        {
            "b": [torch.ones(2), torch.ones(1, 2, dtype=torch.int64)],
            "a": (torch.zeros(3, dtype=torch.bool),),
        },
    )


@agrees(grad=False)
def test_state_that_is_loaded_inside():
    a, b = seeded(lambda: nn.Linear(2, 2)), nn.Linear(2, 2)
    nn.init.constant_(b.weight, 2.0)
    nn.init.constant_(b.bias, 1.0)

    def f(x, alpha):
        mixed = {k: a.state_dict()[k] * alpha + v * (1 - alpha) for k, v in b.state_dict().items()}
        out = torch.func.functional_call(a, mixed, (x,))
        before = a(x)
        missing, unexpected = a.load_state_dict({"weight": mixed["weight"]}, strict=False)
        return out, before, a(x), missing, unexpected

    return f, (torch.ones(1, 2), 0.25)
