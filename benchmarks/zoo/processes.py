"""A process of its own for each model: what one leaves behind does not meet the next, and one that crashes or takes too long is a record.

The parent has imported what each child would import by itself, and forks. The limit is on the processor's time, so that a busy machine
changes no result.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable
from typing import Any


def in_a_process(work: Callable[[Callable[..., None]], None], seconds: int) -> dict[str, Any]:
    """What `work(tell)` has told in a forked child."""
    began = time.monotonic()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:

        def tell(**facts: Any) -> None:
            os.write(writer, (json.dumps(facts) + "\n").encode())

        try:
            os.close(reader)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
            work(tell)
        except BaseException as error:
            tell(problem=f"{type(error).__name__}: {error}"[:400])
        finally:
            os._exit(0)
    os.close(writer)
    record: dict[str, Any] = {}
    with os.fdopen(reader) as lines:
        for text in lines:
            record.update(json.loads(text))
    status = os.waitpid(child, 0)[1]
    if status:
        record["problem"] = f"ended with {os.waitstatus_to_exitcode(status)}"
    return {**record, "seconds": round(time.monotonic() - began, 1)}


def warm() -> None:
    """Import what a child would import by itself: a compiler's modules come with the first compiled call."""
    import torch

    import graftjit

    model = torch.nn.Sequential(
        torch.nn.Embedding(9, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)
    )
    compiled = graftjit.compile(model)
    compiled(torch.tensor([[1, 2, 3]])).sum().backward()
    graftjit.report(compiled).text()
