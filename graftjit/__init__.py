"""A just-in-time compiler for PyTorch programs: the public API."""

# First: commands that need no torch. In any other process this does nothing.
from .cli import early as _quick  # noqa: F401

# isort: split
# Second: report an unsupported Python or a missing extension before anything else can fail.
from .runtime.process import native_loader as _native_part  # noqa: F401
from .runtime.process.own_modules import KEEPER as _KEEPER

# isort: split
from . import context, nn, ops
from .compat import jit_class, ms_function, mutable
from .compiled import compile
from .context import GRAPH_MODE, PYNATIVE_MODE, get_context, set_context
from .dynamic import mark_dynamic
from .gradients import get_grad, grad, value_and_grad
from .jit import explain, jit, lower, report, reset, wait
from .runtime.autograd import accumulator_hooks as _accumulators
from .runtime.autograd import reducers as _reducers
from .runtime.directives import graft_break
from .runtime.process.options import JitConfig
from .runtime.report.report import Report
from .runtime.version import VERSION
from .tensor import Parameter, ParameterTuple, Tensor

_accumulators.watch()
_reducers.watch()
_KEEPER.remember()

__version__ = VERSION

__all__ = [
    "jit",
    "compile",
    "explain",
    "lower",
    "report",
    "reset",
    "wait",
    "graft_break",
    "mark_dynamic",
    "grad",
    "value_and_grad",
    "get_grad",
    "Report",
    "JitConfig",
    "set_context",
    "get_context",
    "GRAPH_MODE",
    "PYNATIVE_MODE",
    "context",
    "nn",
    "ops",
    "Tensor",
    "Parameter",
    "ParameterTuple",
    "ms_function",
    "jit_class",
    "mutable",
]
