"""The files whose import fills the tables of models and handlers.

In: nothing. Out: complete tables in `values.registry`, `interpreter` and `data_model`. `capture.py`
imports this file before the first walk. Models that few programs need are rows with the name of
their module (`values.registry.models_in`).
"""

# ruff: noqa: F401
from __future__ import annotations

import copy

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
from .torch_models import late, state_queries
from .types import classes
from .values.registry import models_in

models_in(f"{__package__}.models.copies", copy.copy, copy.deepcopy)
