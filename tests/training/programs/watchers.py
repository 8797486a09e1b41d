"""Programs that watch autograd: hooks on tensors, nodes, modules and saved tensors, anomaly mode, checkpoints."""

from __future__ import annotations

import operator
import threading
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from .common import Table, backward_inside, base, leaf

program = Table()


@program
def acc_hook(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    log = []
    f = jit(base)
    for k in range(2):
        accs = [p.expand_as(p).grad_fn.next_functions[0][0] for p in (x, w)]
        hs = [
            a.register_hook(lambda gi, go, n=n: log.append((n, go[0].clone())))
            for n, a in zip("xw", accs)
        ]
        f(x, w).sum().backward()
        log.append(("y", (x.grad.clone(), w.grad.clone())))
    # Which leaf of one part comes first is left to autograd's engine.
    return sorted(log, key=operator.itemgetter(0))


@program
def acc_prehook(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    log = []
    f = jit(base)
    a = w.expand_as(w).grad_fn.next_functions[0][0]
    a.register_prehook(lambda g: (log.append("pre"), tuple((t * 2 for t in g)))[1])
    f(x, w).sum().backward()
    return (log, w.grad)


@program
def acc_hook_inside(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    log = []

    f = jit(backward_inside)
    f(x, w)
    a = w.expand_as(w).grad_fn.next_functions[0][0]
    a.register_hook(lambda gi, go: log.append(go[0].clone()))
    f(x, w)
    f(x, w)
    return (log, w.grad, x.grad)


@program
def acc_prehook_inside(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    log = []

    f = jit(backward_inside)
    a = w.expand_as(w).grad_fn.next_functions[0][0]
    a.register_prehook(lambda g: tuple((t * 2 for t in g)))
    f(x, w)
    f(x, w)
    return (log, w.grad, x.grad)


@program
def post_acc(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    log = []
    w.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.clone()))
    f = jit(base)
    f(x, w).sum().backward()
    f(x, w).sum().backward()
    return log


@program
def post_acc_inside(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    log = []
    w.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.clone()))

    f = jit(backward_inside)
    f(x, w)
    f(x, w)
    return log


@program
def tensor_hooks_order(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    log = []
    f = jit(base)
    h = x * 2
    h.register_hook(lambda g: log.append(("h", g.clone())))
    h.retain_grad()
    y = f(h, w)
    y.register_hook(lambda g: (log.append(("y", g.clone())), g * 3)[1])
    y.retain_grad()
    w.register_hook(lambda g: log.append(("w", g.clone())))
    y.sum().backward()
    return (log, h.grad, y.grad, w.grad, x.grad)


@program
def hook_inside(jit: Any) -> Any:
    log = []

    def f(x, w):
        h = x @ w
        h.register_hook(lambda g: (log.append(g.clone()), g * 2)[1])
        return h.tanh().sum()

    g = jit(f)
    x, w = (leaf(3, 4), leaf(4, 2))
    for _ in range(2):
        g(x, w).backward()
    return (log, x.grad)


@program
def retain_grad_inside(jit: Any) -> Any:

    def f(x, w):
        h = x @ w
        h.retain_grad()
        return (h, h.tanh().sum())

    g = jit(f)
    x, w = (leaf(3, 4), leaf(4, 2))
    r = []
    for _ in range(2):
        h, l = g(x, w)
        l.backward()
        r.append(h.grad)
    return r


@program
def module_hooks(jit: Any) -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    log = []
    f = jit(lambda x: net(x))
    x = leaf(3, 4)
    f(x).sum().backward()
    net[0].register_full_backward_hook(lambda m, gi, go: log.append(("fb0", gi[0], go[0].clone())))
    net[2].register_full_backward_pre_hook(
        lambda m, go: (log.append(("pre2", go[0].clone())), (go[0] * 2,))[1]
    )
    net.register_full_backward_hook(lambda m, gi, go: log.append(("net",)))
    for _ in range(2):
        f(x).sum().backward()
    return (log, x.grad, net[0].weight.grad)


@program
def module_hooks_whole(jit: Any) -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    log = []
    jn = jit(net)
    x = leaf(3, 4)
    net.register_full_backward_hook(
        lambda m, gi, go: log.append(("net", gi[0] is None, go[0].clone()))
    )
    net.register_full_backward_pre_hook(lambda m, go: log.append(("pre", go[0].clone())))
    for _ in range(2):
        jn(x).sum().backward()
    return (log, x.grad)


@program
def multi_grad(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    log = []
    f = jit(base)
    for mode in ("all", "any"):
        h = torch.autograd.graph.register_multi_grad_hook(
            (x, w),
            (lambda gs: log.append([g.clone() for g in gs]))
            if mode == "all"
            else lambda g: log.append(g.dim()),
            mode=mode,
        )
        f(x, w).sum().backward()
        h.remove()
    return log


@program
def multi_grad_inside(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    log = []

    f = jit(backward_inside)
    f(x, w)
    h = torch.autograd.graph.register_multi_grad_hook(
        (x, w), lambda gs: log.append([g.clone() for g in gs])
    )
    f(x, w)
    h.remove()
    f(x, w)
    return log


@program
def multi_grad_made_inside(jit: Any) -> Any:
    log = []

    def f(x, w):
        a = x * 2
        b = w * 3
        torch.autograd.graph.register_multi_grad_hook(
            (a, b), lambda gs: log.append([g.clone() for g in gs])
        )
        return (a @ b).sum()

    g = jit(f)
    x, w = (leaf(3, 4), leaf(4, 2))
    g(x, w).backward()
    g(x, w).backward()
    return (log, x.grad)


@program
def saved_hooks(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    n = []
    f = jit(base)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (n.append("p"), t * 1)[1], lambda t: (n.append("u"), t)[1]
    ):
        y = f(x, w)
    y.sum().backward()
    return (n, x.grad)


@program
def save_cpu(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    f = jit(base)
    with torch.autograd.graph.save_on_cpu():
        y = f(x, w)
    y.sum().backward()
    return x.grad


@program
def save_cpu_inside(jit: Any) -> Any:

    def f(x, w):
        with torch.autograd.graph.save_on_cpu():
            y = (x @ w).tanh()
        return y.sum()

    g = jit(f)
    x, w = (leaf(3, 4), leaf(4, 2))
    g(x, w).backward()
    return x.grad


@program
def disable_saved_hooks(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    f = jit(base)
    with torch.autograd.graph.disable_saved_tensors_hooks("no"):
        y = f(x, w)
    y.sum().backward()
    return x.grad


@program
def allow_mutation(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    f = jit(lambda a, w: (a * a * w.sum()).sum())
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        a = x * 1
        y = f(a, w)
        a.mul_(0)
        y.backward()
    return x.grad


@program
def anomaly(jit: Any) -> Any:
    x = leaf(3, 4)
    f = jit(lambda x: (x * 0).sqrt().sum())
    with torch.autograd.detect_anomaly():
        f(x).backward()


@program
def anomaly_outside(jit: Any) -> Any:
    x = leaf(3, 4)
    f = jit(lambda x: (x * 0).sqrt().sum())
    l = f(x)
    with torch.autograd.detect_anomaly():
        l.backward()


@program
def ckpt(jit: Any) -> Any:
    r = []
    for re in (True, False):
        x, w = (leaf(3, 4), leaf(4, 2))
        f = jit(base)
        for _ in range(2):
            checkpoint(f, x, w, use_reentrant=re).sum().backward()
        r.append((x.grad, w.grad))
    return r


@program
def ckpt_inside(jit: Any) -> Any:
    r = []
    for re in (True, False):

        def f(x, w):
            return checkpoint(base, x, w, use_reentrant=re).sum()

        g = jit(f)
        x, w = (leaf(3, 4), leaf(4, 2))
        for _ in range(2):
            g(x, w).backward()
        r.append((x.grad, w.grad))
    return r


@program
def ckpt_dropout(jit: Any) -> Any:
    r = []
    for re in (True, False):
        x = leaf(30, 4)
        f = jit(lambda x: nn.functional.dropout(x * x, 0.5))
        torch.manual_seed(3)
        y = checkpoint(f, x, use_reentrant=re)
        y.sum().backward()
        r.append((y.detach(), x.grad, torch.rand(2)))
    return r


@program
def ckpt_seq(jit: Any) -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)]).double()
    f = jit(lambda x: checkpoint_sequential(net, 2, x, use_reentrant=False).sum())
    x = leaf(3, 4)
    for _ in range(2):
        f(x).backward()
    return x.grad


@program
def node_hook(jit: Any) -> Any:
    log = []
    x = leaf(3, 4)
    y = jit(lambda x: x.sin())(x)
    y.grad_fn.register_hook(lambda gi, go: log.append((gi[0].clone(), go[0].clone())))
    y.grad_fn.register_prehook(lambda go: log.append(go[0].clone()))
    y.sum().backward()
    return log


@program
def grad_edge(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    y = jit(base)(x, w).sum()
    e = torch.autograd.graph.get_gradient_edge(y)
    return torch.autograd.grad(e, (x, w))


@program
def threads(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    f = jit(base)
    y = f(x, w).sum()
    t = threading.Thread(target=y.backward)
    t.start()
    t.join()
    return x.grad


@program
def set_multithreading(jit: Any) -> Any:
    x, w = (leaf(3, 4), leaf(4, 2))
    f = jit(base)
    with torch.autograd.set_multithreading_enabled(False):
        f(x, w).sum().backward()
    return x.grad


@program
def force_orig_view(jit: Any) -> Any:
    x = leaf(3, 4)
    f = jit(lambda x: (x.view(12), x * 2))
    v, y = f(x)
    with torch.autograd._force_original_view_tracking(True):
        return (v._is_view(), v._base is x)


@program
def hook_removed(jit: Any) -> Any:
    log = []
    x, w = (leaf(3, 4), leaf(4, 2))
    f = jit(base)
    h = x.register_hook(lambda g: log.append(1))
    y = f(x, w).sum()
    h.remove()
    y.backward()
    return log
