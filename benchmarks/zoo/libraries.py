"""Where models come from: a module a library, with `NEEDS` (what pip installs), `load()`, `names()` and `prepared(name)`, a `Case`."""

from __future__ import annotations

import importlib
from typing import Any

MODULES = {
    "transformers": "transformers_models",
    "torchvision": "torchvision_models",
    "timm": "timm_models",
    "own": "own",
}


def library(name: str) -> Any:
    """Raises ImportError where the library is not installed."""
    module = importlib.import_module(f".{MODULES[name]}", __package__)
    module.load()
    return module
