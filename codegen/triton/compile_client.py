"""The client of the compile server: worker processes that compile Triton kernels
(`codegen.triton.compile_server`).

In: kernels as plain dicts. Out: one future each, with the fields of a `compiler.Binary`, or a
Fault. The server starts at the first need (or earlier, by `prepare`), ends by itself when it is
idle, and is started again. It dies with this process; a forked child starts its own. A server that
dies with unanswered jobs is replaced once. If triton cannot be imported, the fault is remembered
and no second server is started.
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

from ..build import translation_units
from ..build.background import BACKGROUND
from . import compile_server
from .compiler import Fault, new_enough, too_old

SECONDS = 180.0  # for one kernel
MOST = 16  # children at a time
ATTEMPTS = 3  # the number of servers that may end before they get a job
_SERVER = Path(compile_server.__file__)
# Variables that change triton's result, and are therefore passed on; other variables of triton are
# not.
HANDED_ON = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_LIBDEVICE_PATH")
_KEPT_BACK = re.compile(r"(TRITON|MLIR|LLVM|PYTHON|GRAFTJIT|PROTON)_?|(USE_IR_LOC|LD_PRELOAD)$")


def place_of_triton() -> Path | None:
    """The folder of the package, found without an import; None if there is none."""
    module = sys.modules.get("triton")
    try:
        spec = module.__spec__ if module is not None else importlib.util.find_spec("triton")
    except (ImportError, ValueError, AttributeError):  # blocked, or a replacement without a spec
        return None
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def identity() -> str:
    """The properties of triton that determine a cubin: version, size of its library, replaced
    tools. Empty if there is no triton.
    """
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
    """The version in the package's own text: "3.6.0"; "unknown" if it has none."""
    with contextlib.suppress(OSError):
        text = (place / "__init__.py").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
        if found:
            return found.group(1)
    return "unknown"


def most() -> int:
    """The number of kernels that are compiled at a time."""
    return min(translation_units.processors(), MOST)


def missing() -> Fault | None:
    """Why no kernel can be compiled here, as far as this process can see; None if it can."""
    place = place_of_triton()
    if place is None:
        return Fault(
            "GPU kernels need triton, which is not installed",
            todo="pip install 'graftjit[gpu]'",
        )
    version = version_at(place)
    return None if version == "unknown" or new_enough(version) else too_old(version)


class Server:
    """One running server process and the thread that reads its answers."""

    def __init__(self, place: Path) -> None:
        self.ready: Future[None] = Future()  # of triton's import
        self.jobs: dict[int, tuple[dict[str, Any], Future[tuple[Any, ...]]]] = {}
        self.lock = threading.Lock()  # of the jobs
        # The reading thread never holds this lock, because a writer may wait for a full pipe.
        self.writing = threading.Lock()
        self.ended = False
        self.folder = tempfile.mkdtemp(prefix="graftjit-triton-")
        # `_clean` closes it when the process has ended.
        self.said: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
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
                bufsize=0,  # no buffered bytes that a forked child would write again
                # signals of the terminal to this process do not reach the server
                start_new_session=True,
                cwd="/",
                env=_environment(),
            )
        except BaseException:
            self._clean()
            raise
        try:
            threading.Thread(target=self._hear, name="graftjit: kernels", daemon=True).start()
        except RuntimeError as error:  # the interpreter is shutting down
            self.close()
            raise OSError(str(error)) from error

    def send(self, number: int, job: dict[str, Any], done: Future[tuple[Any, ...]]) -> None:
        """Send a job. BrokenPipeError if the server has ended."""
        assert self.process.stdin
        with self.lock:
            if self.ended:
                raise BrokenPipeError
            self.jobs[number] = (job, done)
        try:
            data = memoryview(compile_server.framed({**job, "id": number}))
            with self.writing:
                while data:
                    data = data[self.process.stdin.write(data) :]
        except (OSError, ValueError) as error:  # it has ended, or has been closed
            with self.lock:
                # the reading thread saw it first and reports it
                if self.jobs.pop(number, None) is None:
                    return
            raise BrokenPipeError from error

    def _hear(self) -> None:
        assert self.process.stdout
        frames, stream = compile_server.Frames(), self.process.stdout.fileno()
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
        """Handle the end of the server: its unanswered jobs fail, and `Workers` submits
        them again.
        """
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
        """End the process and wait for its end."""
        assert self.process.stdin
        with contextlib.suppress(OSError), self.writing:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def forget(self) -> None:
        """In a forked child: close the pipes, so that the server sees the end of its parent."""
        assert self.process.stdin and self.process.stdout
        for stream in (self.process.stdin, self.process.stdout, self.said):
            with contextlib.suppress(OSError):
                stream.close()
        self.process.returncode = 0  # only the parent can wait for it


class _Ended(Fault):
    """The server ended before it had answered."""


def _settle(future: Future[Any], state: str, value: Any, fault: tuple[str, ...]) -> None:
    if state == "done":
        future.set_result(value)
    else:
        future.set_exception(Fault(*fault))


def _environment() -> dict[str, str]:
    """This process's environment without variables that would change triton's result, run its
    interpreter or make it print.
    """
    kept = {n: v for n, v in os.environ.items() if n in HANDED_ON or not _KEPT_BACK.match(n)}
    return {**kept, "TRITON_BACKENDS_IN_TREE": "1", "TRITON_DISABLE_LINE_INFO": "1"}


class Workers:
    """The owner of the running server, one per process."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._number = itertools.count(1)
        self._fault: Fault | None = None  # triton cannot be imported
        self.started = 0  # servers so far, for tests
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the server in a forked child: it belongs to the parent."""
        self._lock = threading.Lock()
        server, self._server = self._server, None
        if server is not None:
            server.forget()

    def prepare(self) -> None:
        """Start the server now, so that it is ready when kernels are. Errors are reported by
        `compile`.
        """
        with contextlib.suppress(Fault):
            self._running()

    def compile(self, jobs: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...] | Fault]:
        """The result of each job; returns when all are done. Fault if no process can be started, or
        if it cannot import triton.
        """
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
        for _attempt in range(ATTEMPTS):  # it may end of idleness at that moment
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
                # TypeError: sys.executable is None
                except (
                    OSError,
                    TypeError,
                ) as error:
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
    """Wait first for kernels that are being built in the background."""
    try:
        BACKGROUND.close()
    finally:
        WORKERS.close()


atexit.register(_at_the_end)
os.register_at_fork(after_in_child=WORKERS.after_fork)
