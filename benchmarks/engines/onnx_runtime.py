"""ONNX Runtime: torch's exporter writes a model, the processor's provider runs it.

The exporter is the newer one (`dynamo=True`) where onnxscript is installed, else the older one,
which traces. Shapes are those of the inputs. The model lies in a folder of the process while it
is loaded.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn


def export(module: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> None:
    """Writes the model to `path`."""
    newer = importlib.util.find_spec("onnxscript") is not None
    options: dict[str, Any] = {"verbose": False} if newer else {}
    torch.onnx.export(module, inputs, str(path), dynamo=newer, **options)


def prepare(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
    """A callable from tensors to tensors, with torch's number of threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory(prefix="graftjit-bench-") as folder:
        path = Path(folder) / "model.onnx"
        export(module, inputs, path)
        session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        feed = {name: value.numpy() for name, value in zip(names, given, strict=True)}
        return tuple(map(torch.from_numpy, session.run(None, feed)))

    return run
