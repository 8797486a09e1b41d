"""The command: the models of a library beside eager, and a table of what was found.

    python -m benchmarks.zoo transformers [NAME ...] [--out FILE.jsonl] [--table FILE.md] [--peer [BACKEND]]

LIBRARY is transformers, torchvision, timm, or own (two models of ours, to try the command). Prints a line a model; ends with 1 if a result
of graftjit's is not eager's, with 2 if the library is missing. With --out each record is appended as soon as it is there, and models that
have one in FILE are not run again: interrupt it as you like. --peer runs torch.compile beside, in another process; its default backend
"eager" shows graphs, breaks and what they change of the results, "inductor" its kernels as well, in much more time.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..results import Results, ResultsError


def main(words: list[str] | None = None) -> int:
    options = _options(words)
    # Checks run everything twice: never what is to be measured.
    os.environ.pop("GRAFTJIT_CHECK", None)
    import torch

    from .. import machine
    from .libraries import library
    from .processes import warm
    from .table import differs, line, markdown

    torch.set_num_threads(1)  # models this small have no work for two, and children are forked
    try:
        source = library(options.library)
    except ImportError as error:
        print(f"{error}: python -m benchmarks.zoo {options.library} needs it (see benchmarks/zoo)", file=sys.stderr)  # fmt: skip
        return 2
    settings = {"seconds": options.seconds, "masks": options.without_masks, "peer": options.peer}
    head = {"settings": settings, "machine": machine.describe(0)}
    try:
        results = Results(head, options.out, resume=True, may_differ=("commit",))
    except ResultsError as error:
        print(error, file=sys.stderr)
        return 2
    warm()
    for name in options.names or source.names():
        if results.done(options.library, name) is None:
            record = {"kind": options.library, "workload": name, "name": name, "commit": head["machine"]["commit"]}  # fmt: skip
            record |= _record(source, name, options)
            results.add(record)
            print(f"{name}: {line(record)}", flush=True)
    chosen = [r for r in results.lines if r["kind"] == options.library and (not options.names or r["name"] in options.names)]  # fmt: skip
    text = markdown(chosen)
    print(f"\n{text}", end="")
    if options.table:
        options.table.write_text(text, encoding="utf-8")
    return 1 if any(map(differs, chosen)) else 0


def _record(source: Any, name: str, options: argparse.Namespace) -> dict[str, Any]:
    from .looks import look
    from .processes import in_a_process
    from .systems import Graftjit, Peer

    def ours(tell: Callable[..., None]) -> None:
        case = source.prepared(name)
        tell(arguments=case.described, parameters=sum(x.numel() for x in case.model.parameters()))
        look(case, Graftjit(), tell, without_masks=options.without_masks, times=options.times)

    def theirs(tell: Callable[..., None]) -> None:
        look(source.prepared(name), Peer(options.peer), tell, times=False)

    record = in_a_process(ours, options.seconds)
    if options.peer and "arguments" in record:
        record["peer"] = in_a_process(theirs, options.seconds)
    return record


def _options(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("library", choices=("transformers", "torchvision", "timm", "own"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="models of the library; all without one")  # fmt: skip
    parser.add_argument("--out", type=Path, help="a file that gets a record, as JSON, a model")
    parser.add_argument("--table", type=Path, help="a file that gets the table, as Markdown")
    parser.add_argument("--peer", nargs="?", const="eager", metavar="BACKEND", help="torch.compile beside")  # fmt: skip
    parser.add_argument("--seconds", type=int, default=180, help="processor time of a model")
    parser.add_argument("--without-masks", action="store_true", help="inference without masks, too")
    parser.add_argument("--no-times", dest="times", action="store_false", help="results and graphs alone")  # fmt: skip
    return parser.parse_intermixed_args(words)


if __name__ == "__main__":
    sys.exit(main())
