"""`python -m graftjit cache info | clear | save FILE | load FILE`: the actions and their output.

In: the arguments of the command line. Out: text or JSON on stdout, and the exit status. A user's
mistake raises UserError, which the command line prints.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from ..runtime.errors import UserError
from ..runtime.process.session import SESSION
from ..runtime.store import bundle
from ..runtime.store.store import KernelStore, StoreStats
from .parser import size, sure


def run(parsed: argparse.Namespace) -> int:
    """Run one action on the store of this process and print the result."""
    action, file = parsed.action, parsed.file
    if action in ("save", "load") and file is None:
        raise UserError(f"cache {action} needs the name of a file", expected=f"cache {action} FILE")
    if action not in ("save", "load") and file is not None:
        raise UserError(f"cache {action} takes no file", found=file)
    store = SESSION.store
    if action == "clear" and not parsed.yes and not _sure_to_clear(store):
        print("nothing was removed")
        return 1
    done = _ACTIONS[action](store, Path(file or ""), parsed.digest)
    stats = store.stats()
    if parsed.json:
        print(json.dumps({**_facts(stats), **done}))
        return 0
    for name, value in done.items():
        if value or type(value) is int:
            print(f"{name + ':':<9} {value}")
    print(f"folder:   {stats.folder}" + (f"  ({stats.unusable})" if stats.unusable else ""))
    print(
        f"kernels:  {stats.files}"
        + (f" and {stats.cubins} for GPUs" if stats.cubins else "")
        + f", {size(stats.bytes)} of at most {size(stats.limit)}"
    )
    if stats.oldest is not None and stats.newest is not None:
        day = "%Y-%m-%d %H:%M"
        old, new = (time.strftime(day, time.localtime(t)) for t in (stats.oldest, stats.newest))
        print(f"used:     from {old} to {new}")
    return 0


def _sure_to_clear(store: KernelStore) -> bool:
    stats = store.stats()
    return not stats.files or sure(
        f"remove {stats.files} libraries of kernels ({size(stats.bytes)}) from {stats.folder}?"
    )


def _facts(stats: StoreStats) -> dict[str, Any]:
    return {
        "folder": str(stats.folder),
        "writable": stats.writable,
        "unusable": stats.unusable,
        "files": stats.files,
        "cubins": stats.cubins,
        "bytes": stats.bytes,
        "limit": stats.limit,
    }


def _info(_store: KernelStore, _file: Path, _digest: str) -> dict[str, Any]:
    return {}


def _clear(store: KernelStore, _file: Path, _digest: str) -> dict[str, Any]:
    return {"removed": store.clear()}


def _save(store: KernelStore, file: Path, _digest: str) -> dict[str, Any]:
    _refuse_to_replace(file)
    done = bundle.save(store, file)
    return {"saved": done.kernels, "digest": done.digest, "damaged": list(done.refused)}


def _refuse_to_replace(file: Path) -> None:
    """Raise UserError unless the file is missing or is a bundle, which may be overwritten."""
    if not file.exists():
        return
    if file.is_file():
        with open(file, "rb") as stream:
            if stream.read(len(bundle.MAGIC)) == bundle.MAGIC:
                return
    raise UserError(
        "a file that is not a bundle has this name; it was not overwritten",
        found=str(file),
        todo="choose another name, or remove the file first",
    )


def _load(store: KernelStore, file: Path, digest: str) -> dict[str, Any]:
    done = bundle.load(store, file, digest)
    return {"loaded": done.kernels, "digest": done.digest, "of another processor": done.elsewhere}


_ACTIONS = {"info": _info, "clear": _clear, "save": _save, "load": _load}
