"""The GPUs of a graph, for planning and for the state of their random generators."""

from __future__ import annotations

import torch

from .nodes import Graph, Meta


def gpus_of(graph: Graph) -> list[torch.device]:
    """The cuda devices that hold a value of the graph."""
    found: dict[torch.device, None] = {}
    for node in (*graph.inputs, *graph.nodes):
        metas = node.meta if isinstance(node.meta, tuple) else (node.meta,)
        for meta in metas:
            if type(meta) is Meta and meta.device.type == "cuda":
                found[meta.device] = None
    return sorted(found, key=str)
