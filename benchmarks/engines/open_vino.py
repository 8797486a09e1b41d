"""OpenVINO: its own converter traces the module, the processor's plug-in compiles it for latency.

The plug-in is set to float32: its default is bfloat16 where the processor has it. Shapes are those
of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def prepare(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
    """A callable over tensors, with torch's threads; the next call overwrites its results."""
    import openvino

    shapes = [tuple(value.shape) for value in inputs]
    model = openvino.convert_model(module, example_input=inputs, input=shapes)
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    compiled = openvino.Core().compile_model(model, "CPU", options)
    request, outputs = compiled.create_infer_request(), compiled.outputs

    def run(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        arrays = [value.numpy() for value in given]
        found = request.infer(arrays, share_inputs=True, share_outputs=True)
        return tuple(torch.from_numpy(found[one]) for one in outputs)

    return run
