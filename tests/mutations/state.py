"""State of torch: default dtype and device, autocast, gradients, determinism, backends, threads, modes."""

from __future__ import annotations

import contextlib
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .kinds import SAME, kind
from .objects import Box

X = torch.tensor([0.5, -1.0])
M = torch.tensor([[0.5, -1.0], [2.0, 0.25]])


@kind
def default_dtype():
    def f(x):
        return x + torch.tensor(1.5), torch.zeros(2), torch.get_default_dtype()

    try:
        yield f, (X,)
        torch.set_default_dtype(torch.float64)
        yield
    finally:
        torch.set_default_dtype(torch.float32)
    yield SAME


@kind
def default_device():
    def f(x):
        return torch.zeros(2).device.type, x + 1

    try:
        yield f, (X,)
        torch.set_default_device("meta")
        yield
    finally:
        torch.set_default_device(None)
    yield SAME


@kind
def default_device_as_a_context():
    def f(x):
        return torch.ones(2).device.type, x + 1

    yield f, (X,)
    with torch.device("meta"):
        yield
    yield SAME


@kind
def autocast_switched():
    def f(x):
        return torch.mm(x, x)

    yield f, (M,)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield
    with torch.autocast("cpu", dtype=torch.float16):
        yield
    with torch.autocast("cpu", enabled=False):
        yield
    yield SAME


@kind
def autocast_dtype_set():
    def f(x):
        with torch.autocast("cpu"):
            return torch.mm(x, x)

    before = torch.get_autocast_dtype("cpu")
    try:
        yield f, (M,)
        torch.set_autocast_dtype("cpu", torch.float16)
        yield
    finally:
        torch.set_autocast_dtype("cpu", before)
    yield SAME


@kind
def grad_mode():
    def f(x):
        y = x * 2
        return y, y.requires_grad, torch.is_grad_enabled()

    leaf = X.clone().requires_grad_()
    yield f, (leaf,)
    with torch.no_grad():
        yield
    yield SAME
    with torch.inference_mode():
        yield


@kind
def grad_mode_set_for_good():
    def f(x):
        y = x * 2
        return y.detach(), y.requires_grad

    leaf = X.clone().requires_grad_()
    before = torch.is_grad_enabled()
    try:
        yield f, (leaf,)
        torch.set_grad_enabled(not before)
        yield
    finally:
        torch.set_grad_enabled(before)
    yield SAME


@kind
def inference_tensors():
    def f(x):
        return x * 2, x.is_inference()

    yield f, (X,)
    with torch.inference_mode():
        made = X + 0
    yield (made,)
    yield (X,)


@kind
def deterministic_algorithms():
    def f(x):
        return x + torch.are_deterministic_algorithms_enabled()

    try:
        yield f, (X,)
        torch.use_deterministic_algorithms(True)
        yield
        torch.use_deterministic_algorithms(True, warn_only=True)
        yield
    finally:
        torch.use_deterministic_algorithms(False)
    yield SAME


@kind
def deterministic_fill_of_empty_memory():
    def f(x):
        y = torch.empty(3)
        return torch.isnan(y).all() if torch.are_deterministic_algorithms_enabled() else x

    try:
        yield f, (X,)
        torch.use_deterministic_algorithms(True)
        yield
    finally:
        torch.use_deterministic_algorithms(False)
    yield SAME


@kind
def number_of_threads():
    before = torch.get_num_threads()

    def f(x):
        return x + torch.get_num_threads()

    try:
        yield f, (X,)
        torch.set_num_threads(before + 1)
        yield
    finally:
        torch.set_num_threads(before)
    yield


@kind
def backend_flags():
    def f(x):
        return x + 1 if torch.backends.mkldnn.enabled else x - 1

    first = torch.backends.mkldnn.enabled
    try:
        yield f, (X,)
        with torch.backends.mkldnn.flags(enabled=not first):
            yield
    finally:
        torch._C._set_mkldnn_enabled(first)
    yield


@kind
def cudnn_flags():
    first = torch.backends.cudnn.benchmark, torch.backends.cudnn.enabled

    def f(x):
        x = x + 1 if torch.backends.cudnn.benchmark else x - 1
        return x if torch.backends.cudnn.enabled else x * 3

    # torch's own test utilities, imported by other tests, freeze the flags
    with torch.backends.__allow_nonbracketed_mutation():
        try:
            yield f, (X,)
            torch.backends.cudnn.benchmark = not first[0]
            yield
            torch.backends.cudnn.enabled = not first[1]
            yield
        finally:
            torch.backends.cudnn.benchmark, torch.backends.cudnn.enabled = first
    yield


@kind
def matmul_precision():
    first = torch.get_float32_matmul_precision()

    def f(x):
        return x + len(torch.get_float32_matmul_precision())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield f, (X,)
            torch.set_float32_matmul_precision("high" if first == "highest" else "highest")
            yield
        finally:
            torch.set_float32_matmul_precision(first)
        yield


@kind
def attention_backends():
    def f(x):
        q = x.reshape(1, 1, 2, 2)
        return F.scaled_dot_product_attention(q, q, q), torch.backends.cuda.flash_sdp_enabled()

    first = torch.backends.cuda.flash_sdp_enabled()
    try:
        yield f, (M,)
        torch.backends.cuda.enable_flash_sdp(not first)
        yield
    finally:
        torch.backends.cuda.enable_flash_sdp(first)
    yield SAME


@kind
def anomaly_detection():
    def f(x):
        return x + torch.is_anomaly_enabled()

    yield f, (X,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.set_detect_anomaly(True):
            yield
    yield


@kind
def function_mode_entered():
    class Doubles(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out * 2 if func is torch.sin else out

    def f(x):
        return torch.sin(x) + 1

    yield f, (X,)
    with Doubles():
        yield
    yield SAME


@kind
def dispatch_mode_entered():
    class Doubles(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out * 2 if func is torch.ops.aten.sin.default else out

    def f(x):
        return torch.sin(x) + 1

    yield f, (X,)
    with Doubles():
        yield
    yield SAME


@kind
def torch_function_disabled():
    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            out = super().__torch_function__(func, types, args, kwargs or {})
            return out * 2 if func is torch.sin else out

    def f(x):
        return torch.sin(x)

    yield f, (X.as_subclass(Sub),)
    with torch._C.DisableTorchFunctionSubclass():
        yield
    yield


@kind
def forward_gradients():
    import torch.autograd.forward_ad as fwd

    def f(x):
        return x * 3

    yield f, (X,)
    with fwd.dual_level():
        yield (fwd.make_dual(X, X + 1),)
    yield (X,)


@kind
def inside_a_transform():
    o = Box(run=lambda f, x: f(x))

    def g(x):
        return x.sin().sum()

    def f(x):
        return o.run(g, x)

    yield f, (M,)
    o.run = lambda f, x: torch.func.vmap(f)(x)
    yield
    o.run = lambda f, x: torch.func.grad(f)(x)
    yield
    o.run = lambda f, x: f(x)
    yield


@kind
def saved_tensor_hooks_in_force():
    def f(x):
        return (x * x).sum()

    leaf = X.clone().requires_grad_()
    yield f, (leaf,)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
        yield
    yield


@kind
def autocast_cache_and_weights():
    o = Box(w=nn.Parameter(M.clone()))

    def f(x):
        return torch.mm(x, o.w)

    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        yield f, (M,)
        o.w.data.mul_(2)
        yield SAME
        torch.clear_autocast_cache()
        o.w = nn.Parameter(M * 3)
        yield SAME


@kind
def contexts_given_as_attributes():
    o = Box(context=contextlib.nullcontext())

    def f(x):
        with o.context:
            y = x * 2
        return y.detach(), y.requires_grad

    leaf = X.clone().requires_grad_()
    yield f, (leaf,)
    o.context = torch.no_grad()
    yield
    o.context = torch.enable_grad()
    yield


@kind
def fill_uninitialized_memory():
    first = torch.utils.deterministic.fill_uninitialized_memory

    def f(x):
        y = torch.empty(4)
        return x, torch.isnan(y).sum() if torch.are_deterministic_algorithms_enabled() else 0

    try:
        torch.use_deterministic_algorithms(True)
        yield f, (X,)
        torch.utils.deterministic.fill_uninitialized_memory = first
        yield SAME
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = first
        torch.use_deterministic_algorithms(False)


@kind
def print_options():
    def f(x):
        return x + 1, f"{x.sum().item():.2f}", str(torch.zeros(1))

    try:
        yield f, (X,)
        torch.set_printoptions(precision=2, sci_mode=True)
        yield
    finally:
        torch.set_printoptions(profile="default", sci_mode=None)
    yield


@kind
def flush_of_denormal_numbers():
    tiny = torch.tensor([1e-310], dtype=torch.float64)

    def f(x):
        return x * 1.0

    yield f, (tiny,)
    supported = torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
    yield supported
