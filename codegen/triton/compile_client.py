"""Worker processes that compile Triton kernels: this process's end of `codegen.triton.compile_server`.

In: kernels as plain dicts. Out: a future each, with the fields of a `triton_compile.Binary`, or a Fault. The server
is started at the first need (or ahead of it, by `prepare`), ends by itself when it has nothing to do, and is started
again. It dies with this process; a forked child of this process has none and starts its own. A server that dies with
jobs unanswered is replaced once; what triton's import says is remembered, and no second server is started to hear it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any

from ..build import translation_units as units
from ..build.background import BACKGROUND
from . import compile_server as triton_server
from .compiler import Fault, new_enough, too_old

SECONDS = 180.0  # for one kernel
MOST = 16  # children at a time
ATTEMPTS = 3  # servers that may end before they can be given a job
_SERVER = Path(triton_server.__file__)
# What decides what triton makes, and is therefore handed on; its other variables are not.
HANDED_ON = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_LIBDEVICE_PATH")
_KEPT_BACK = re.compile(r"(TRITON|MLIR|LLVM|PYTHON|GRAFTJIT|PROTON)_?|(USE_IR_LOC|LD_PRELOAD)$")


def place_of_triton() -> Path | None:
    """The folder of the package, found without an import; None where there is none."""
    module = sys.modules.get("triton")
    try:
        spec = module.__spec__ if module is not None else importlib.util.find_spec("triton")
    except (ImportError, ValueError, AttributeError):  # blocked, or a stand-in without a spec
        return None
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def identity() -> str:
    """What of triton decides a cubin: version, size of its library, the tools that were put in place of its own.
    Empty where there is no triton."""
    place = place_of_triton()
    if place is None:
        return ""
    version = version_at(place)
    with contextlib.suppress(OSError):
        sizes = [e.stat().st_size for e in os.scandir(place / "_C") if e.name.endswith(".so")]
        version = f"{version} {sorted(sizes)}"
    return " ".join([f"triton {version}", *(_tool(n) for n in HANDED_ON if n in os.environ)])


def _tool(name: str) -> str:
    path, size = os.environ[name], 0
    with contextlib.suppress(OSError):
        size = os.stat(path).st_size
    return f"{name}={path} {size}"


def version_at(place: Path) -> str:
    """As the package's own text has it: "3.6.0"; "unknown" where it has none."""
    with contextlib.suppress(OSError):
        text = (place / "__init__.py").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
        if found:
            return found.group(1)
    return "unknown"


def most() -> int:
    """How many kernels are compiled at a time."""
    return min(units.processors(), MOST)


def missing() -> Fault | None:
    """Why no kernel can be compiled here, as far as that can be seen without a process; None if it can."""
    place = place_of_triton()
    if place is None:
        return Fault(
            "GPU kernels need triton, which is not installed",
            todo="pip install 'graftjit[gpu]'",
        )
    version = version_at(place)
    return None if version == "unknown" or new_enough(version) else too_old(version)


class Server:
    """One running server process and the thread that hears its answers."""

    def __init__(self, place: Path) -> None:
        self.ready: Future[None] = Future()  # of triton's import
        self.jobs: dict[int, tuple[dict[str, Any], Future[tuple[Any, ...]]]] = {}
        self.lock = threading.Lock()  # of the jobs
        self.writing = (
            threading.Lock()
        )  # never held by the thread that hears: a full pipe waits for it
        self.ended = False
        self.folder = tempfile.mkdtemp(prefix="graftjit-triton-")
        self.said: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  (closed when the process has ended)
        facts = {
            "path": [str(place.parent), *filter(os.path.isabs, sys.path)],
            "folder": self.folder,
            "most": most(),
        }
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SERVER), json.dumps(facts)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.said,
                bufsize=0,  # nothing that a forked child would write once more
                start_new_session=True,  # what a terminal sends to this process is not for it
                cwd="/",
                env=_environment(),
            )
        except BaseException:
            self._clean()
            raise
        try:
            threading.Thread(target=self._hear, name="graftjit: kernels", daemon=True).start()
        except RuntimeError as error:  # the process is at its end
            self.close()
            raise OSError(str(error)) from error

    def send(self, number: int, job: dict[str, Any], done: Future[tuple[Any, ...]]) -> None:
        """Hand a job over. BrokenPipeError if the server has ended."""
        assert self.process.stdin
        with self.lock:
            if self.ended:
                raise BrokenPipeError
            self.jobs[number] = (job, done)
        try:
            data = memoryview(triton_server.framed({**job, "id": number}))
            with self.writing:
                while data:
                    data = data[self.process.stdin.write(data) :]
        except (OSError, ValueError) as error:  # it has ended, or has been closed
            with self.lock:
                if (
                    self.jobs.pop(number, None) is None
                ):  # the other thread saw it first, and says so
                    return
            raise BrokenPipeError from error

    def _hear(self) -> None:
        assert self.process.stdout
        frames, stream = triton_server.Frames(), self.process.stdout.fileno()
        while data := os.read(stream, 1 << 20):
            for number, state, values in frames.add(data):
                if number is None:
                    _settle(self.ready, state, None, values)
                    continue
                with self.lock:
                    _job, done = self.jobs.pop(number)
                _settle(done, state, values, values)
        self._end()

    def _end(self) -> None:
        """The server is gone: what it has not answered is nobody's until `Workers` takes it up."""
        assert self.process.stdin and self.process.stdout
        with self.lock:
            self.ended = True
            left, self.jobs = self.jobs, {}
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.stdout.close()
        code = self.process.wait()
        self.said.seek(0)
        text = self.said.read().decode("utf-8", "replace").strip()[-2000:]
        fault = Fault(
            "the process that compiles GPU kernels ended",
            "\n".join(filter(None, (f"exit status {code}", text))),
            todo="see python -m graftjit doctor",
        )
        self._clean()
        if not self.ready.done():
            self.ready.set_exception(_Ended(*fault.args))
        for _job, done in left.values():
            done.set_exception(_Ended(*fault.args))

    def _clean(self) -> None:
        self.said.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Let the process end, and see that it does."""
        assert self.process.stdin
        with contextlib.suppress(OSError), self.writing:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def forget(self) -> None:
        """In a forked child: let go of the pipes, so that the server sees its parent's end."""
        assert self.process.stdin and self.process.stdout
        for stream in (self.process.stdin, self.process.stdout, self.said):
            with contextlib.suppress(OSError):
                stream.close()
        self.process.returncode = 0  # it is not ours to wait for


class _Ended(Fault):
    """The server ended before it had answered."""


def _settle(future: Future[Any], state: str, value: Any, fault: tuple[str, ...]) -> None:
    if state == "done":
        future.set_result(value)
    else:
        future.set_exception(Fault(*fault))


def _environment() -> dict[str, str]:
    """This process's, less what would make triton compile something else, run its interpreter or be loud."""
    kept = {n: v for n, v in os.environ.items() if n in HANDED_ON or not _KEPT_BACK.match(n)}
    return {**kept, "TRITON_BACKENDS_IN_TREE": "1", "TRITON_DISABLE_LINE_INFO": "1"}


class Workers:
    """One a process: the server that is running, if one is."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._number = itertools.count(1)
        self._fault: Fault | None = None  # triton cannot be imported
        self.started = 0  # servers so far, for tests
        self.after_fork()

    def after_fork(self) -> None:
        """The server is the parent's."""
        self._lock = threading.Lock()
        server, self._server = self._server, None
        if server is not None:
            server.forget()

    def prepare(self) -> None:
        """Start the server now, so that it is there when kernels are. What goes wrong is said then."""
        with contextlib.suppress(Fault):
            self._running()

    def compile(self, jobs: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...] | Fault]:
        """What comes of each job; returns when all are done. Fault where no process can be started, or where it
        cannot import triton."""
        futures = [self._submit(dict(job)) for job in jobs]
        return [self._result(job, future) for job, future in zip(jobs, futures, strict=True)]

    def _result(
        self, job: Mapping[str, Any], future: Future[tuple[Any, ...]], again: bool = True
    ) -> tuple[Any, ...] | Fault:
        try:
            return future.result()
        except _Ended as fault:
            if not again:
                return Fault(*fault.args)
            return self._result(job, self._submit(dict(job)), again=False)
        except Fault as fault:
            return fault

    def _submit(self, job: dict[str, Any]) -> Future[tuple[Any, ...]]:
        job.setdefault("seconds", SECONDS)
        last: Fault = _Ended("the process that compiles GPU kernels ended")
        for _attempt in range(ATTEMPTS):  # it may end of idleness at the very moment
            server = self._running()
            try:
                server.ready.result()
                future: Future[tuple[Any, ...]] = Future()
                server.send(next(self._number), job, future)
                return future
            except BrokenPipeError:
                continue
            except _Ended as fault:
                last = fault
            except Fault as fault:
                self._fault = fault
                raise
        self._fault = last
        raise last

    def _running(self) -> Server:
        with self._lock:
            if self._fault is not None:
                raise self._fault
            if self._server is None or self._server.ended:
                fault = missing()
                if fault is not None:
                    raise fault
                place = place_of_triton()
                assert place is not None
                try:
                    self._server = Server(place)
                except (
                    OSError,
                    TypeError,
                ) as error:  # TypeError: this Python knows no program of its own
                    raise Fault(
                        "the process that compiles GPU kernels cannot be started",
                        found=str(error),
                        todo="see python -m graftjit doctor",
                    ) from error
                self.started += 1
            return self._server

    def close(self) -> None:
        """End the server; the next job starts another."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.close()


WORKERS = Workers()


def _at_the_end() -> None:
    """Kernels that are being built in the background are waited for first."""
    try:
        BACKGROUND.close()
    finally:
        WORKERS.close()


atexit.register(_at_the_end)
os.register_at_fork(after_in_child=WORKERS.after_fork)
