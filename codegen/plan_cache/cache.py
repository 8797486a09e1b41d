"""Plans in the kernel store: a graph that was planned once needs no passes, no fusion and no text of kernels again.

`key_of(graph)` says all that the plan depends on (`graph_key`); `recall` finds what was kept under it, in this or
another process; `loaded` makes the program of it, with its kernels from the store (or from the compiler, where they are
gone: their text is kept, too). A plan is a note among the kernels (`runtime.store.notes`). Under GRAFTJIT_CHECK it is made
anew all the same, and compared. Used by `codegen.backend`; `codegen.pipeline` makes what is kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.dataclass import dataclass
from ...ir.graph.nodes import Graph
from ...runtime.errors import BuildError, CheckError
from ...runtime.process import hardware as device
from ...runtime.process.session import SESSION
from ...runtime.program.program import ProgramSpec
from ...runtime.store import notes as kept_notes
from ..build import cxx as build
from ..build import translation_units as units
from ..kernels import fixed
from ..programs import step_facts as facts
from ..programs.compiled import Compiled, KernelRecord, record
from . import key as graph_key
from . import serialize as plan_form
from .key import NotKept
from .serialize import At, Bound

__all__ = ["At", "Key", "Plain", "compare", "keep", "key_of", "loaded", "plain", "recall"]

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Key:
    """The texts that a plan is kept under, and the machine and compiler."""

    texts: tuple[str, ...]
    here: tuple[str, str]


def key_of(graph: Graph) -> Key | None:
    """The key of a graph's plan; None for one that has none, or where there is no way to have kernels."""
    compiler = device.find_compiler()
    if compiler is None and not SESSION.store.bundled():
        return None
    here = device.cpu().identity, "none" if compiler is None else compiler.identity
    try:
        return Key(graph_key.texts(graph), here)
    except NotKept:
        return None


def recall(key: Key) -> Plain | None:
    """What was kept under this key."""
    found: Plain | None = kept_notes.recall(SESSION.store, key.texts, *key.here)
    return found


def keep(key: Key, made: Callable[[], Plain]) -> None:
    """Keep what `made` gives, if it can be."""
    try:
        value = made()
    except NotKept:
        return
    kept_notes.keep(SESSION.store, key.texts, *key.here, value)


def plain(
    graph: Graph,
    spec: ProgramSpec,
    source: str,
    symbols: dict[str, str],
    kernels: Sequence[tuple[str, Sequence[str], int]],
    replaced: Sequence[tuple[str, str]],
    library: int,
    gpu: Plain | None = None,
    steps: Sequence[Plain] = (),
) -> Plain:
    """A plan as it is kept: the program, over names of kernels; the kernels' text, and which symbol stands for each;
    (name, what it covers, bytes) of each for the report; (symbol, file) of those of fixed text; the calls of ATen; the kernels of GPUs
    (`gpu_plan.Written.plain`); what is told of each step (`facts.rows`)."""
    constants = [node.target for node in graph.nodes if node.op == "constant"]
    places = {id(tensor): at for at, tensor in enumerate(constants)}
    if any(id(tensor) not in places for tensor in spec.constants.values()):
        raise NotKept("a constant that the passes have made")
    return {
        "program": plan_form.written(spec),
        "constants": [[slot, places[id(tensor)]] for slot, tensor in spec.constants.items()],
        "source": source,
        "symbols": symbols,
        "kernels": [[name, list(covers), nbytes] for name, covers, nbytes in kernels],
        "replaced": [list(pair) for pair in replaced],
        "library": library,
        "gpu": gpu,
        "steps": list(steps),
    }


def compare(graph: Graph, kept: Plain, made: Plain) -> None:
    """Raise CheckError where these are two plans."""
    for name in made:
        texts = [json.dumps(one.get(name), sort_keys=True) for one in (kept, made)]
        if texts[0] != texts[1]:
            raise CheckError(
                f"the plan of the graph {graph.name} that was kept is not the one that is made now: {name}",
                expected=texts[1][:2000],
                found=texts[0][:2000],
                todo="please report it; `python -m graftjit cache clear` makes plans anew",
            )


def loaded(graph: Graph, kept: Plain, stored: bool = False) -> Compiled | None:
    """The graph's program by the plan that was kept; None where kernels would have to be built and `stored` says that
    they shall not, or cannot be."""
    from ...runtime.executor.lower import load  # late: it loads the native extension

    start = time.perf_counter()
    source, symbols = kept["source"], kept["symbols"]
    covers = tuple(line for _name, lines, _bytes in kept["kernels"] for line in lines)
    names = list(dict.fromkeys(symbols.values()))
    try:
        others = fixed.load(kept["replaced"], stored=stored) if kept["replaced"] else None
        keep = build.load(source, names, graph.name, covers, stored) if source else None
        on_gpu = _texts(kept)
        gpu = _gpu(kept, on_gpu, graph.name, covers, stored)
    except (build.NotBuilt, BuildError):  # planned anew, it ends in the same way, and tells of it
        return None
    built = time.perf_counter()
    addresses = {} if keep is None else dict(keep.addresses)
    if others is not None:
        addresses |= others.addresses
    tensors = [node.target for node in graph.nodes if node.op == "constant"]
    constants = {slot: tensors[at] for slot, at in kept["constants"]}
    spec = plan_form.read(
        kept["program"], graph.name, constants, Bound(addresses, (keep, others), gpu, on_gpu)
    )
    records = _records(kept, keep is not None and keep.cached, gpu)
    rows, was = kept["steps"], {one.name: one.cached for one in records}
    program = load(spec)
    laps = {"build": built - start, "load": time.perf_counter() - built}
    return Compiled(
        graph,
        program,
        "fused",
        spec,
        records,
        kept["library"],
        len(names) + len(gpu),
        timings=laps,
        steps=facts.told(graph, rows, was),
        sketch=facts.sketch(graph, rows),
        source=_source(kept),
        sampled=program,
    )


def _source(kept: Plain) -> str:
    """The text of all kernels."""
    on_gpu = kept["gpu"] or {"texts": {}}
    return "\n\n\n".join([kept["source"], *(one["source"] for one in on_gpu["texts"].values())])


def _texts(kept: Plain) -> dict[str, Any]:
    """The kernels of GPUs, by key."""
    plain = kept["gpu"] or {"texts": {}}
    return {key: plan_form.kernel_of(text) for key, text in plain["texts"].items()}


def _gpu(
    kept: Plain, texts: dict[str, Any], name: str, covers: tuple[str, ...], stored: bool
) -> dict[str, Any]:
    """They loaded."""
    if not texts:
        return {}
    return plan_form.load_kernels(texts, kept["gpu"]["capabilities"], name, covers, stored)


def _records(kept: Plain, cached: bool, gpu: Plain) -> tuple[KernelRecord, ...]:
    """The kernels for the report. One of equal ones is in the text, under its name: the others are as it is."""
    texts, symbols = units.kernels(kept["source"]), kept["symbols"]
    on_gpu = kept["gpu"] or {"of": {}}
    found = []
    for name, covers, nbytes in kept["kernels"]:
        keys = on_gpu["of"].get(name)
        if keys is not None:
            text = "\n".join([on_gpu["texts"][key]["source"] for key in keys])
            was = all(gpu[key].cached for key in keys)
            found.append(record(name, text, tuple(covers), nbytes, was, "#"))
            continue
        of = symbols[name]
        text = texts[of].replace(f" {of}(", f" {name}(", 1)
        found.append(record(name, text, tuple(covers), nbytes, cached))
    return tuple(found)
