"""Plans in the kernel store: a graph that was planned once needs no passes, no fusion and no kernel
texts again.

`key_of(graph)` is everything that the plan depends on (`key`). `recall` finds the plan that this or
another process kept under it. `loaded` makes the program from it, with kernels from the store, or
from the compiler if the store lost them: their text is kept, too. A plan is a note among the
kernels (`runtime.store.notes`). Under GRAFTJIT_CHECK the plan is made anew all the same, and
compared. `codegen.pipeline` makes the plans that are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.dataclass import dataclass
from ...ir.graph.nodes import Graph
from ...runtime.errors import BuildError, CheckError
from ...runtime.executor import lower as executor
from ...runtime.process import hardware
from ...runtime.process.session import SESSION
from ...runtime.program.program import ProgramSpec
from ...runtime.store import notes
from ..build import cxx, translation_units
from ..kernels import libraries
from ..programs import step_facts
from ..programs.compiled import Compiled, KernelRecord, record
from . import key as graph_key
from . import serialize
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
    """The key of a graph's plan; None for a graph without a key, or if no kernels can be made or
    loaded.
    """
    compiler = hardware.find_compiler()
    if compiler is None and not SESSION.store.bundled():
        return None
    here = hardware.cpu().identity, "none" if compiler is None else compiler.identity
    try:
        return Key(graph_key.texts(graph), here)
    except NotKept:
        return None


def recall(key: Key) -> Plain | None:
    """The plan that was kept under this key."""
    found: Plain | None = notes.recall(SESSION.store, key.texts, *key.here, serialize.loads)
    return found


def keep(key: Key, made: Callable[[], Plain]) -> None:
    """Keep the result of `made`, if it can be kept."""
    try:
        data = serialize.dumps(made())
    except NotKept:
        return
    notes.keep(SESSION.store, key.texts, *key.here, data)


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
    """A plan in the form that is kept.

    Its parts: the program, over names of kernels; the kernels' text; kernel -> symbol in the text;
    (name, covered lines, bytes) of each kernel for the report; (symbol, file) of the fixed kernels;
    the number of ATen calls; the kernels of GPUs (`gpu_kernels.Written.plain`); the facts of each
    step (`step_facts.rows`).
    """
    constants = [node.target for node in graph.nodes if node.op == "constant"]
    places = {id(tensor): at for at, tensor in enumerate(constants)}
    if any(id(tensor) not in places for tensor in spec.constants.values()):
        raise NotKept("a constant that the passes have made")
    return {
        "program": serialize.unbound(spec),
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
    """Raise CheckError if the two plans differ."""
    # read from bytes as the kept one, since the order of a set depends on how the set was made
    made = serialize.loads(serialize.dumps(made))
    for name in made:
        texts = [repr(one.get(name)) for one in (kept, made)]
        if texts[0] != texts[1]:
            raise CheckError(
                f"the kept plan of the graph {graph.name} differs"
                f" from the plan that is made now: {name}",
                expected=texts[1][:2000],
                found=texts[0][:2000],
                todo="please report it; `python -m graftjit cache clear` removes kept plans",
            )


def loaded(graph: Graph, kept: Plain, stored: bool = False) -> Compiled | None:
    """The graph's program from the kept plan; None if kernels would have to be built and `stored`
    forbids it, or if they cannot be built.
    """
    start = time.perf_counter()
    source, symbols = kept["source"], kept["symbols"]
    covers = tuple(line for _name, lines, _bytes in kept["kernels"] for line in lines)
    names = list(dict.fromkeys(symbols.values()))
    try:
        others = libraries.load(kept["replaced"], stored=stored) if kept["replaced"] else None
        keep = cxx.load(source, names, graph.name, covers, stored) if source else None
        gpu = _gpu(kept, graph.name, covers, stored)
    # the graph is planned anew, meets the same error and reports it
    except (cxx.NotBuilt, BuildError):
        return None
    built = time.perf_counter()
    addresses = {} if keep is None else dict(keep.addresses)
    if others is not None:
        addresses |= others.addresses
    tensors = [node.target for node in graph.nodes if node.op == "constant"]
    constants = {slot: tensors[at] for slot, at in kept["constants"]}
    spec = serialize.bound(
        kept["program"], graph.name, constants, Bound(addresses, (keep, others), gpu)
    )
    records = _records(kept, keep is not None and keep.cached, gpu)
    rows, was = kept["steps"], {one.name: one.cached for one in records}
    program = executor.load(spec)
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
        steps=step_facts.report_facts(graph, rows, was),
        sketch=step_facts.sketch(graph, rows),
        source=_source(kept),
        sampled=program,
    )


def _source(kept: Plain) -> str:
    """The text of all kernels."""
    on_gpu = kept["gpu"] or {"texts": {}}
    return "\n\n\n".join([kept["source"], *(one.source for one in on_gpu["texts"].values())])


def _gpu(kept: Plain, name: str, covers: tuple[str, ...], stored: bool) -> dict[str, Any]:
    """The loaded kernels of GPUs, by key."""
    on_gpu = kept["gpu"]
    if not on_gpu:
        return {}
    return serialize.load_kernels(on_gpu["texts"], on_gpu["capabilities"], name, covers, stored)


def _records(kept: Plain, cached: bool, gpu: Plain) -> tuple[KernelRecord, ...]:
    """The kernels for the report. Of equal kernels the text has only one, under its name; the
    others get its text.
    """
    texts, symbols = translation_units.kernels(kept["source"]), kept["symbols"]
    on_gpu = kept["gpu"] or {"of": {}}
    found = []
    for name, covers, nbytes in kept["kernels"]:
        keys = on_gpu["of"].get(name)
        if keys is not None:
            text = "\n".join([on_gpu["texts"][key].source for key in keys])
            was = all(gpu[key].cached for key in keys)
            found.append(record(name, text, tuple(covers), nbytes, was, "#"))
            continue
        of = symbols[name]
        text = texts[of].replace(f" {of}(", f" {name}(", 1)
        found.append(record(name, text, tuple(covers), nbytes, cached))
    return tuple(found)
