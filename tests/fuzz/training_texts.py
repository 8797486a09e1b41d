"""The programs of `tests.fuzz.training`: a step of a training with writes, breaks, branches, blocks
and a module, and its calls.

In: a seed. Out: `Case`, the text of a function of three tensors, a module and a list, and the steps
that call it, with changes between them. Every statement has been tried: in plain Python the first
call runs through it and makes nothing that is large or not finite.
"""

from __future__ import annotations

import io
import random
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import torch

T = torch.Tensor
VALUES = (
    "{x} * 2 - 1", "{x}.sin()", "{x}.tanh()", "{x}.sigmoid() * {y}", "{x} + {y}", "{x} * {y}", "{x} - {y}", "{x} / ({y} * {y} + 1)",
    "torch.where({x} > 0.1, {x}, {y})", "{x}.sum(0)", "{x}.mean(-1, keepdim=True)", "{x}.softmax(-1)", "{x}.cumsum(0)", "{x}.sum()",
    "{x}.detach()", "{x}.detach() * {y}", "{x}.clone()", "{x}.detach().clone()", "{x}.data", "{x}.data * {y}", "{x} * W", "W + 0",
    "{x}.abs().sqrt()", "{x}.relu()", "{x} ** 2", "{x} @ {x}.t() * 0.2", "F.dropout({x}, 0.3)", "quiet({x})", "torch.stack(({x}, {y}))",
    "torch.cat(({x}, {y}), -1)", "torch.lerp({x}, {y}, 0.3)", "{x}.max(0)[0]", "{x}.norm() + {y}", "F.layer_norm({x}, {x}.shape[-1:])",
    "{x}[[0, 0, -1]]", "{x}[{x} > 0]", "{x}.flip(0)", "{x} * torch.rand_like({x})", "torch.randn(4) * {x}", "{x}.masked_fill({y} > 0, 0.5)",
    "F.mse_loss({x}, {y})", "{x}.scatter(0, torch.zeros(1, 4, dtype=torch.int64), {y})", "{x}.index_select(0, torch.tensor([1, 0]))",
    "{x}.nonzero()", "{x}.std()", "torch.einsum('...i,...i->...', {x}, {y})", "{x}.prod(-1)", "{x}.sort(-1)[0]", "{x}.topk(1)[0]",
)  # fmt: skip
VIEWS = (
    "{x}[0]", "{x}[1:]", "{x}[..., 1:]", "{x}[..., ::2]", "{x}[:, 0]", "{x}.t()", "{x}.transpose(0, -1)", "{x}.view(-1)", "{x}.reshape(-1)",
    "{x}.unsqueeze(0)", "{x}.expand(3, *{x}.shape)", "{x}.expand_as({y})", "{x}.as_strided((2, 2), (1, 2))", "{x}.diagonal()",
    "{x}.chunk(2, -1)[1]", "{x}.unbind(0)[1]", "{x}[:]", "{x}.view_as({x})", "{x}.detach()[0]", "{x}.squeeze()", "{x}[None]", "{x}.split(1)[0]",
    "{x}.T", "{x}.unfold(-1, 2, 1)", "{x}.narrow(0, 0, 1)", "{x}.select(-1, 1)", "{x}.flatten()", "{x}.contiguous()", "{x}.to({x}.dtype)",
)  # fmt: skip
FRESH = (
    "torch.zeros({x}.shape)", "torch.zeros_like({x})", "torch.empty_like({x}).fill_(0.5)", "{x}.new_zeros(3, 4)", "torch.ones(3, 4)",
    "torch.zeros(4)", "{x}.detach().clone().requires_grad_()", "torch.arange(4.0)", "torch.full((3, 1), 0.5)", "{x}.new_ones({x}.shape)",
    "torch.zeros(0, 4)", "{x}[:0]", "torch.tensor([0.5, -1.0, 2.0, 0.0])", "torch.tensor(1.5)", "torch.empty(3, 4).copy_({x})",
    "torch.zeros(4, 3).t()", "torch.randn(3, 4)", "torch.zeros(3, 4, dtype=torch.float64)", "torch.eye(4)[:3]",
)  # fmt: skip
DTYPES = (
    "{x} > 0", "({x} > {y}) * {x}", "({x} * 10).int()", "{x}.double()", "{x}.float()", "{x}.bfloat16()", "{x}.half().float()",
    "({x} > 0).float()", "{x}.long() + {y}", "{x}.bool().sum(0)", "{x}.to(torch.float64) * {y}", "torch.arange(4) * {x}", "{x}.argmax(-1)",
    "{x}.type_as({y})", "{x}.detach().double().requires_grad_()", "torch.ones(4, dtype=torch.int32) + {y}", "~({x} > 0)", "{x}.round().int() // 2",
)  # fmt: skip
WRITES = (
    "{x}[0] = {y}", "{x}[0] = {y}[0]", "{x}[0] = 0.5", "{x}[:, 1:] += {y}", "{x}[..., 1:] += {y}[..., 1:]", "{x}[..., 0] = {y}[..., 0]",
    "{x}[{x} > 0] = 0.25", "{x}[{x} > 0] = {y}.sum()", "{x}[{y} > 0] += 1", "{x}[-1].mul_(2)", "{x}[..., 1:].copy_({y}[..., :-1])",
    "{x}.index_put_((torch.tensor([0, 1]),), {y}[:2], accumulate=True)", "{x}.index_put_((torch.tensor([0, 0]),), {y}[0])",
    "{x}.index_add_(0, torch.tensor([0, 0]), {y}[:2])", "{x}.masked_fill_({y} > 0, 0.25)", "{x}.copy_({y})", "{x}.zero_()", "{x}.fill_(0.5)",
    "{x}.fill_({y}.sum())", "{x}.t()[0].add_({y}.sum())", "{x}.diagonal().add_(1)", "{x}.view(-1)[::2].mul_(0.5)", "{x}.data.mul_(0.5)",
    "{x}.as_strided((2, 2), (1, 2)).add_(1)", "{x}.T.mul_(0.5)", "{x}.unbind(0)[0].mul_(2)", "{x}.chunk(2, -1)[0].add_({y}.sum())",
    "{x} += {y}", "{x} *= {y}", "{x} -= 1", "{x}.add_({y}, alpha=0.5)", "{x}.lerp_({y}, 0.3)", "{x}.addcmul_({y}, {y})", "{x}.sigmoid_()",
    "{x}.clamp_(-1, 1)", "{x}.sin_()", "{x}.relu_()", "{x}.detach_()", "{x}.requires_grad_()", "{x}.mul_({x})",
    "{x}.data = {y}.detach()", "{x}.detach().add_(1)", "torch.add({y}, 1, out={x})", "torch.mul({y}.detach(), 2, out={x})", "{x} /= 2",
    "torch.sin({y}, out={x})", "{x}[0][1] = {y}.sum()", "{x}[1:][0] = {x}[0]", "{x}[[0, 1]] = {y}[:2]", "{x}[0, 1] += {x}[1, 0]",
    "{x}.scatter_(0, torch.zeros(1, 4, dtype=torch.int64), {y})", "{x}.normal_()", "F.relu({x}, inplace=True)",
    "{x}.squeeze(0).add_({y})", "{x}[None].add_({y})", "{x}.expand_as({x}).mul_(2)", "{x}.reshape(-1).add_(1)", "{x}.flatten()[1:].zero_()",
    "{x}.real.mul_(2)", "torch.nn.init.constant_({x}, 0.5)", "{x}.clamp_(min={y})", "{x}.exp_().mul_(0.1)", "{x}.cumsum_(0)", "{x}.set_({y})",
    "torch._foreach_mul_([{x}], 0.5)", "torch._foreach_add_([{x}], [{y}])",
    "{x}.logical_not_()", "{x}.__setitem__((slice(None), 0), {y}[..., 0])", "{x}.triu_()", "{x}.pow_(2)", "{x}.neg_()",
)  # fmt: skip
BREAKS = (
    "print(bool({x}.sum() > 0))", "print({x}.detach().sum().item() > 0, {x}.shape)", "time.sleep(0)", "str(id({x}))", "unknown({x})",
    "log.append({x}.sum().item() > 0)", "graftjit.graft_break()", "{x}.detach().sum().tolist()", "log.append({x}.requires_grad)",
    "print(repr({x}.detach().sum() > 0))", "log.append({x}.is_leaf)", "log.append({x}.grad_fn is None)",
    "{x}.detach().numpy()[:1] *= 2", "log.append({x})", "log.append({x}.detach())", "log.append({x}.data_ptr() == {y}.data_ptr())",
    "log.append({x}._is_view())", "wrote({x}, {y})", "{v} = broke({x})", "{v} = maybe({x})", "{v} = inside({x}, {y})", "log.append({x} is {y})",
    "{x}.grad_fn is None or {x}.register_hook(lambda g: g * 0.5)", "{x}.grad_fn and {x}.register_hook(lambda g: log.append(bool(g.sum() > 0)))", "{x}.retain_grad()",
    "log.append({x}.stride())", "log.append({x}.output_nr)",
)  # fmt: skip
MODULE = (
    "{v} = net({x})", "{v} = net({x})", "{v} = net.lin({x})", "{v} = net.tied({x})", "{v} = net.norm({x})", "{v} = {x} * net.lin.weight[0]",
    "net.ema.mul_(0.9).add_({x}.detach().mean(0), alpha=0.1)", "net.ema = net.ema * 0.9 + {x}.detach().mean(0) * 0.1", "net.count += 1",
    "net.steps += 1", "net.train(not net.training)", "net.ema.copy_({x}[0])", "{v} = {x} + net.ema", "net.ema = {x}.detach().sum(0)",
    "{v} = F.batch_norm({x}, net.norm.running_mean, net.norm.running_var, training=True)", "net.lin.weight.requires_grad_(False)",
    "net.zero_grad()", "{v} = F.linear({x}, net.lin.weight)", "net.ema = net.ema + {x}.sum(0)", "net.lin.weight.data.mul_(0.9)",
    "net.lin.weight.requires_grad_()", "{v} = {x} * net.count", "net.ema[0] = {x}.detach().sum()", "net.kept = {x}", "{v} = {x} * net.kept",
    "net.eval()", "net.lin.bias.data.copy_({x}.detach().sum(0))", "net.kept.add_({x})", "{v} = net.kept * net.steps", "{v} = net.two({x})",
)  # fmt: skip
BACKWARDS = (
    "{x}.sum().backward()", "{x}.square().sum().backward(retain_graph=True)", "{v} = torch.autograd.grad({x}.sum(), {y}, retain_graph=True)[0]",
    "{v} = torch.autograd.grad({x}.square().sum(), {y}, create_graph=True)[0]", "{v} = {y}.grad", "W.grad = None", "{v} = {y}.grad * 2",
    "{x}.sum().backward(retain_graph=True, inputs=[{y}])", "{y}.grad.zero_()", "W.data.sub_({x}.detach().mean() * 0.1)",
)  # fmt: skip
CONDITIONS = (
    "{x}.sum() > 0", "{x}.sum().item() > 0.1", "bool(({x} > 0).all())", "{x}.requires_grad", "{x}.is_leaf", "{x}.grad_fn is None",
    "{x}.shape[0] > 2", "torch.is_grad_enabled()", "float({x}.detach().mean()) < 0.2", "{x}.detach().max() > 1", "net.training", "{x}.any()",
    "{x}.dtype == torch.float32", "{x}.is_contiguous()", "{x}.isnan().any()", "net.steps % 2", "{x}.abs().max() > {y}.abs().max()", "len(log) % 2",
    "{x}.sum().sin() > 0.2", "{x} is {y}", "torch.equal({x}, {y})", "{x}.numel() == 0", "{x}.grad is None",
)  # fmt: skip
LOOPS = (
    "for i in range(2):", "for i in range(3):", "for {v} in ({x}, {y}):", "for {v} in {x}.unbind(0):", "for i, {v} in enumerate([{x}, {y}, a]):",
    "for {v} in {x}:", "for p in net.parameters():", "for i in range({x}.shape[0]):", "for i in iter(range(4)):",
)  # fmt: skip
BLOCKS = (
    "with torch.no_grad():", "with torch.no_grad():", "with torch.enable_grad():", "with torch.autocast('cpu', torch.bfloat16):",
    "with torch.set_grad_enabled(False):", "with torch.autocast('cpu', enabled=False):", "with torch.set_grad_enabled(net.training):",
)  # fmt: skip
INSIDE_LOOPS = (
    "if {x}.sum() > 0: break", "if {x}.sum().sin() <= 0.3: continue", "{x}[i] = {y}[i] * 2", "{x}[i] += {y}[i]", "{v} = {x} + {y} * i",
    "{v} = {v}.tanh() * {y}", "{x}.add_({y} * i)", "if i: time.sleep(0)", "log.append({x}[i])", "{v} = {x}[i]", "p.data.mul_(0.9)",
    "{v} = p.sum() + {x}", "if i == 1: print(bool({x}.sum() > 0))", "{x} += {y}",
)  # fmt: skip
SHAPES = ("(3, 4)", "(4,)", "(3, 1)")
OTHERS = ("(3, 4)", "(2, 4)", "(4, 4)", "(1, 4)", "(0, 4)", "(3, 1)", "(4,)", "(5, 4)", "()")
HANDED = (
    "{x}", "{x}", "{x} * 1", "({x} * 1)[:]", "{x}.detach()", "{x}.t().contiguous().t()", "{x}.double()", "{x}.detach().double().requires_grad_()",
    "{x}.detach()[:]", "({x} * 1).t().contiguous().t()", "{x}.bfloat16()", "{x}.detach()[:1].expand_as({x})", "({x} * 1).view_as({x})",
    "torch.nn.Parameter({x}.detach())", "({x} * 4).int()", "({x} * 1).flip(0)",
)  # fmt: skip
ALIASES = (
    "b = a",
    "b = a[0]",
    "c = a[:, :1]",
    "c = a",
    "b = a.detach()[0]",
    "b = a.view(-1)[:4]",
    "c = b",
    "b = (a * 1)[0]",
    "log.append(a)",
)
CHANGES = (
    "net.eval()", "net.train()", "net.lin.weight.requires_grad_(not net.lin.weight.requires_grad)", "net.lin.bias.requires_grad_(False)",
    "net.lin.weight = torch.nn.Parameter(torch.full((4, 4), 0.3))", "net.register_forward_hook(lambda m, a, r: r * 2)",
    "net.lin.register_forward_hook(lambda m, a, r: log.append(bool(r.sum() > 0)))", "net.lin.register_forward_pre_hook(lambda m, a: (a[0] + 1,))",
    "net.lin.register_full_backward_hook(lambda m, a, r: log.append('backward'))", "net.zero_grad()", "net.lin.weight.data.mul_(0.5)",
    "net.ema = torch.zeros(4)", "log.clear()", "W.requires_grad_(not W.requires_grad)", "net.steps = 0", "net.norm.momentum = 0.5",
    "net.lin.weight.register_hook(lambda g: g * 2)", "W.register_hook(lambda g: log.append(bool(g.sum() > 0)))", "net.lin.bias = None",
    "net.lin.tied = None", "net.tied = torch.nn.Linear(4, 4)", "net.norm.track_running_stats = False", "W.data = torch.full((4,), 0.7)",
    "net.lin.weight.grad = torch.ones(4, 4)", "W.grad = None", "net.ema.requires_grad_()", "net.double()", "net.float()",
)  # fmt: skip


@dataclass(slots=True)
class Case:
    """A program, and the steps that call it, as texts."""

    lines: list[str]
    steps: list[str]

    def source(self) -> str:
        return "\n    ".join(["def program(a, b, c, net, log):", *self.lines]) + "\n"


@dataclass(slots=True)
class Writer:
    """Writes a program statement by statement; `tried(source)` runs it and gives its locals."""

    choose: random.Random
    tried: Callable[[str], dict[str, Any] | None]
    lines: list[str] = field(default_factory=list)
    tails: list[str] = field(default_factory=list)  # of blocks that need a further part
    names: list[str] = field(default_factory=lambda: ["a", "b", "c"])
    made: int = 0

    def line(self, text: str, indent: str) -> bool:
        """Take a statement if the program still runs with it."""
        lines = [*self.lines, indent + text, *reversed(self.tails)]
        found = self.tried(Case([*lines, "return locals()"], []).source())
        if found is None:
            return False
        self.lines.append(indent + text)
        for name, value in found.items():
            if isinstance(value, T) and name not in self.names and not indent:
                self.names.append(name)
        return True

    def some(self) -> str:
        return self.choose.choice(self.names[-6:] if self.choose.random() < 0.8 else self.names)

    def text(self, template: str, depth: int) -> str:
        if depth and self.choose.random() < 0.7:
            name = self.some()
        else:
            self.made += "{v}" in template
            name = f"v{self.made}"
        return template.format(x=self.some(), y=self.some(), v=name)

    def statement(self, depth: int, loops: int, indent: str) -> None:
        kinds = (
            "eeevvfdwwwwwwbbbbmmmg"
            + "ooooiiiiW" * (depth < 2)
            + "llllll" * (loops > 0)
            + "t" * (depth < 1)
        )
        kind = self.choose.choice(kinds)
        tables = {"e": VALUES, "v": VIEWS, "f": FRESH, "d": DTYPES}
        if kind in "oiWt":
            self.compound(kind, depth, loops, indent)
        elif kind in tables:
            self.line(self.text("{v} = " + self.choose.choice(tables[kind]), depth), indent)
        else:
            table = {"w": WRITES, "b": BREAKS, "m": MODULE, "g": BACKWARDS, "l": INSIDE_LOOPS}[kind]
            self.line(self.text(self.choose.choice(table), depth), indent)

    def compound(self, kind: str, depth: int, loops: int, indent: str) -> None:
        heads = {"o": LOOPS, "W": BLOCKS, "i": CONDITIONS, "t": ("try:",)}
        head = self.choose.choice(heads[kind])
        if kind == "i":
            head = f"if {head}:"
        if not self.line(self.text(head, 0) + " pass" if kind != "t" else "pass", indent):
            return
        begin = len(self.lines) - 1
        self.lines[begin] = (
            self.lines[begin].removesuffix(" pass") if kind != "t" else indent + "try:"
        )
        if kind == "t":
            self.tails += [f"{indent}    log.append('caught')", f"{indent}except RuntimeError:"]
        for _ in range(self.choose.randrange(1, 5 if kind == "W" else 4)):
            self.statement(depth + 1, loops + (kind == "o"), indent + "    ")
        if kind == "t" and self.choose.random() < 0.5 and self.lines[begin + 1 :]:
            self.lines.append(
                f"{indent}    if {self.some()}.detach().sum() > 0: raise RuntimeError"
            )
        if len(self.lines) == begin + 1:
            self.lines.append(f"{indent}    pass")
        if kind == "t":
            self.lines += [self.tails.pop(), self.tails.pop()]
        if kind == "i" and self.choose.random() < 0.4:
            self.lines.append(f"{indent}else:")
            last = len(self.lines)
            self.statement(depth + 1, loops, indent + "    ")
            if len(self.lines) == last:
                self.lines.append(f"{indent}    pass")

    def write(self) -> None:
        for _ in range(self.choose.randrange(3, 16)):
            self.statement(0, 0, "")
        results = sorted({self.some() for _ in range(self.choose.randrange(1, 6))})
        self.lines.append(f"return {', '.join(results)}")


def steps(choose: random.Random) -> list[str]:
    """Calls with their arguments, and changes between them."""
    found = []
    for number in range(choose.randrange(2, 6)):
        if number and choose.random() < 0.4:
            found.append(choose.choice(CHANGES))
        wide = number > 0 and choose.random() < 0.3
        for place, (name, shape) in enumerate(zip("abc", SHAPES, strict=True)):
            if wide and choose.random() < 0.6:
                shape = choose.choice(OTHERS)
            seed = place if choose.random() < 0.5 else choose.randrange(100)
            leaf = f"leaf({seed}, {shape}, {choose.random() < 0.7})"
            hand = choose.choice(HANDED) if choose.random() < 0.4 else "{x}"
            if "t()" in hand and shape.count(",") != 1:
                hand = "{x}"
            found.append(f"{name} = {hand.format(x=leaf)}")
        if choose.random() < 0.15:
            found.append(choose.choice(ALIASES))
        found.append(
            choose.choice(("call()",) * 6 + ("call(False)", "quiet_call()", "call(mixed=True)"))
        )
        if choose.random() < 0.3:
            found.append("call()")
    return found


def case(seed: int, world: Callable[[int], dict[str, Any]]) -> Case:
    """The case of a seed; `world(seed)` makes what a program sees beside its arguments."""
    choose = random.Random(seed)
    calls = steps(choose)
    first = calls[: next(n for n, step in enumerate(calls) if "call" in step)]

    def tried(source: str) -> dict[str, Any] | None:
        space = world(seed)
        torch.default_generator.manual_seed(0)
        try:
            with redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(source, space)
                for step in first:
                    exec(step, space)
                found: dict[str, Any] = space["program"](
                    *(space[name] for name in ("a", "b", "c", "net", "log"))
                )
        except Exception:
            return None
        for value in [*found.values(), space["net"].ema]:
            if isinstance(value, T) and (
                value.numel() > 500 or not bool(value.detach().double().isfinite().all())
            ):
                return None
        return found if space["net"].steps < 50 else None

    writer = Writer(choose, tried)
    writer.write()
    return Case(writer.lines, calls)
