"""The files that fill the tables of models and handlers: loaded here, or listed to be loaded late.

In: nothing; `capture.py` imports this file before the first walk. Out: complete tables in
`values.registry`, `interpreter` and `data_model`. What few programs need is a row with the name of
a module, which is imported when one of the callables is first called. A callable without a model in
its module may have a row, too: then the module is imported for nothing.
"""

# ruff: noqa: F401
from __future__ import annotations

import copy
import io
import logging
import random
import sys
import time
import warnings
import weakref
from types import FunctionType
from typing import Any

import torch
from torch import distributions
from torch.autograd.profiler import record_function
from torch.nn.attention import sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _foreach_utils
from torch.utils import checkpoint as torch_checkpoint

from ..runtime.autograd import differentiate
from .interpreter import (
    handlers,
    handlers_exception_groups,
    handlers_exceptions,
    handlers_generators,
    handlers_imports,
    handlers_match,
)
from .models import builtins, conversions, iterators, stdlib
from .operations import attribute_readers
from .torch_models import calls, state_queries
from .types import classes
from .values.registry import (
    collective_operator,
    drawn_tensor,
    group_attribute,
    library_operator,
    models_in,
    models_of_module,
    set_data,
)


def _named(holder: Any, *beginnings: str) -> list[Any]:
    """The callables of a module whose names begin so."""
    return [value for name, value in vars(holder).items() if name.startswith(beginnings)]


def _steps() -> list[Any]:
    """The functions of torch.optim that compute a step."""
    # torch.optim deletes most of its modules' names.
    modules = [one for name, one in sys.modules.items() if name.startswith("torch.optim.")]
    found = [_named(one, "_single_tensor_", "_multi_tensor_", "_fused_") for one in modules]
    return [one for functions in found for one in functions if type(one) is FunctionType]


def _collectives() -> list[Any]:
    """Functions of torch.distributed that send messages."""
    if not torch.distributed.is_available():
        return []
    beginnings = ("all_", "broadcast", "reduce", "gather", "scatter", "barrier")
    pairs = "send", "recv", "isend", "irecv"
    return [one for one in _named(torch.distributed, *beginnings, *pairs) if callable(one)]


def _of_groups() -> list[Any]:
    """Functions of torch.distributed that tell of process groups, or make them."""
    if not torch.distributed.is_available():
        return []
    names = (
        *("get_rank", "get_world_size", "get_backend", "get_process_group_ranks"),
        *("get_global_rank", "get_group_rank", "new_group", "_get_group_tag"),
        "_get_group_size_by_name",
        *("_resolve_group_name_by_ranks_and_tag", "_find_or_create_pg_by_ranks_and_tag"),
    )
    return [getattr(torch.distributed.distributed_c10d, name) for name in names]


_OF_STREAMS = ("write", "flush")
_OF_LOGGERS = (
    *("debug", "info", "warning", "error", "critical", "log", "warn", "_log"),
    *("isEnabledFor", "getEffectiveLevel", "hasHandlers"),
)
_OF_ADAPTERS = (*_OF_LOGGERS, "process", "__init__")
_TYPES = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
_CLOCKS = [
    getattr(time, name + kind)
    for name in ("time", "perf_counter", "monotonic", "process_time")
    for kind in ("", "_ns")
]
_OF_GENERATORS = (
    *("random", "uniform", "gauss", "normalvariate", "lognormvariate", "expovariate"),
    *("betavariate", "gammavariate", "vonmisesvariate", "paretovariate", "weibullvariate"),
    *("triangular", "randint", "randrange", "getrandbits", "choice", "seed"),
    *("sample", "choices", "shuffle"),
)
_SETTINGS: tuple[Any, ...] = (
    torch_checkpoint.set_checkpoint_early_stop,
    torch_checkpoint.set_checkpoint_debug_enabled,
)
# Module -> the callables whose models it has.
LATE: dict[str, list[Any]] = {
    "operations.called_numbers": [
        *_CLOCKS,
        *(random.random, random.getrandbits),
        *(getattr(random.Random, name) for name in _OF_GENERATORS),
    ],
    "models.collectives": _collectives(),
    "models.copies": [copy.copy, copy.deepcopy],
    "models.distributions": [
        distributions.kl.kl_divergence,
        distributions.utils._lazy_property_and_property,
    ],
    "models.functional_collectives": [collective_operator],
    "models.legacy": [
        torch.autograd.Variable,
        torch.Tensor,
        *(getattr(torch, f"{name}Tensor") for name in _TYPES),
        calls.GETTERS["data"],
        set_data,
    ],
    "models.process_groups": [*_of_groups(), group_attribute],
    "models.parameters": [torch.nn.Parameter],
    "models.profiler_labels": [
        record_function.__init__,
        record_function.__enter__,
        record_function.__exit__,
    ],
    "data_model.raising_checks": [torch._assert_async, torch._check],
    "models.output": [
        print,
        *(getattr(one, name) for one in (io.TextIOWrapper, io.StringIO) for name in _OF_STREAMS),
        warnings.warn,
        *(getattr(logging.Logger, name) for name in _OF_LOGGERS),
        *(getattr(logging.LoggerAdapter, name) for name in _OF_ADAPTERS),
        logging.getLogger,
    ],
    "models.tensor_comparisons": [
        *(getattr(one, name) for one in (torch, torch.Tensor) for name in ("equal", "allclose")),
    ],
    "models.warning_filters": [
        warnings.catch_warnings,
        warnings.catch_warnings.__enter__,
        warnings.catch_warnings.__exit__,
        warnings.simplefilter,
        warnings.filterwarnings,
    ],
    "models.weak_mappings": [
        weakref.WeakKeyDictionary.__getitem__,
        weakref.WeakKeyDictionary.__contains__,
        weakref.WeakKeyDictionary.get,
    ],
    "operator_models.attention_backends": [sdpa_kernel],
    "operator_models.control_flow": [torch.cond],
    "operations.drawn_tensors": [
        drawn_tensor,
        torch.Generator,
        torch.Generator.manual_seed,
    ],
    "operator_models.library_operators": [library_operator],
    "torch_models.autograd_function": [vars(torch.autograd.Function)["apply"].__func__],
    "torch_models.checkpoints": [
        torch_checkpoint.checkpoint,
        torch_checkpoint.checkpoint_sequential,
        torch_checkpoint.create_selective_checkpoint_contexts,
        *_SETTINGS,
        *(one.__wrapped__ for one in _SETTINGS),
    ],
    "torch_models.data_parallel": [DistributedDataParallel.forward],
    "torch_models.differentiate": [
        differentiate.differentiate,
        differentiate.separate,
        differentiate.gradients,
    ],
    "torch_models.foreach": [
        *_named(torch, "_foreach_", "_amp_"),
        _foreach_utils._device_has_foreach_support,
        _foreach_utils._get_foreach_kernels_supported_devices,
    ],
    "torch_models.optimizer_rules": [*_named(torch, "_fused_"), *_steps()],
}
# Module -> the modules of torch that programs import, of whose functions it has models.
OF_MODULES: dict[str, list[str]] = {
    "models.async_tensors": ["torch.distributed._functional_collectives"],
    "operator_models.control_flow": [
        "torch._higher_order_ops.while_loop",
        "torch._higher_order_ops.scan",
    ],
    "operator_models.flex_attention": ["torch.nn.attention.flex_attention"],
    "models.fully_sharded": ["torch.distributed.fsdp._fully_shard._fsdp_state"],
}
for _module, _names in OF_MODULES.items():
    models_of_module(f"{__package__}.{_module}", *_names)
for _module, _callables in LATE.items():
    models_in(f"{__package__}.{_module}", *_callables)
