"""The compile server for Triton kernels: it imports triton once and forks one child per kernel.

It runs as a script, without graftjit and torch. In, on its standard input: jobs, one kernel each.
Out, on its standard output: first the result of triton's import, then one answer per job, in the
order in which they finish. A child that crashes, hangs or is killed costs only its own kernel; one
that the system killed for lack of memory is tried again alone. The process ends, with all its
children, when its input ends, its parent ends, or it has been idle for a while. Triton writes only
into the folder that the process is given; the process removes it at its end.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import gc
import importlib.util
import json
import os
import pickle
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

IDLE = 30.0  # seconds without a job after which the process ends
LOOK = 1.0  # seconds between checks of the clock and of the parent
SHOWN = 2000  # characters of a compiler's output that go into an answer
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG

# ("done", a Binary's fields) or ("fault", a Fault's arguments)
Answer = tuple[str, tuple[Any, ...]]


def framed(message: Any) -> bytes:
    """A message on the stream: its length, its pickle."""
    data = pickle.dumps(message)
    return struct.pack("<q", len(data)) + data


class Frames:
    """Splits the bytes of a stream into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> list[Any]:
        """The messages that are complete with these bytes."""
        self._bytes += data
        found = []
        while len(self._bytes) >= 8:
            (length,) = struct.unpack_from("<q", self._bytes)
            if len(self._bytes) < 8 + length:
                break
            found.append(pickle.loads(bytes(self._bytes[8 : 8 + length])))
            del self._bytes[: 8 + length]
        return found


class Child:
    """A forked process with its job, the pipe of its answer, and a file for the output of its
    compilers.
    """

    def __init__(self, job: dict[str, Any], work: Any, folder: str) -> None:
        self.job, self.folder = job, tempfile.mkdtemp(dir=folder)
        self.until = time.monotonic() + job["seconds"]
        self.late = False
        self.answer = bytearray()
        self.printed = os.open(os.path.join(self.folder, "printed"), os.O_RDWR | os.O_CREAT, 0o600)
        self.pipe, write = os.pipe()
        parent = os.getpid()
        self.process = os.fork()
        if self.process == 0:
            _run_child(work, job, self.folder, (self.printed, write), parent)
        os.close(write)

    def kill(self) -> None:
        """Kill it and the processes that it started."""
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self.process, signal.SIGKILL)

    def ended(self) -> Answer:
        """The child's answer, after its pipe has ended; its files and its process are removed."""
        _process, status = os.waitpid(self.process, 0)
        os.close(self.pipe)
        os.lseek(self.printed, 0, os.SEEK_SET)
        printed = os.read(self.printed, 1 << 20).decode("utf-8", "replace").strip()[-SHOWN:]
        os.close(self.printed)
        shutil.rmtree(self.folder, ignore_errors=True)
        name, code = self.job["name"], os.waitstatus_to_exitcode(status)
        if self.late:
            seconds = f"{self.job['seconds']:.0f} s"
            return "fault", (f"compiling the kernel {name} took longer than {seconds}", printed)
        if code == 0:
            answer: Answer = pickle.loads(bytes(self.answer))
            if answer[0] == "fault" and printed:
                what, found, *rest = (*answer[1], "")
                return "fault", (what, "\n".join(filter(None, (found, printed))), *rest[:2])
            return answer
        if code == -signal.SIGKILL:
            return "fault", (
                f"the process that compiled the kernel {name} was killed",
                "signal 9: most likely the system had no memory left",
                "",
                "free memory and compile again",
            )
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        found = "\n".join(filter(None, (how, printed)))
        return "fault", (f"the process that compiled the kernel {name} crashed", found)


def _run_child(
    work: Any, job: dict[str, Any], folder: str, files: tuple[int, int], parent: int
) -> None:
    """The work of the child, with the files of its output and of its answer. It never returns."""
    code, (printed, write) = 1, files
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before that call
            return
        for stream in (1, 2):
            os.dup2(printed, stream)
        tempfile.tempdir = folder
        answer = pickle.dumps(work(job, folder))
        with open(write, "wb") as file:
            file.write(answer)
        code = 0
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


class Server:
    """The loop: jobs in, children, answers out."""

    def __init__(self, inbox: int, outbox: int, work: Any, folder: str, most: int) -> None:
        self.inbox, self.outbox, self.work, self.folder, self.most = (
            inbox, outbox, work, folder, most,
        )  # fmt: skip
        self.frames = Frames()
        self.waiting: collections.deque[dict[str, Any]] = collections.deque()
        self.starved: list[dict[str, Any]] = []  # to be tried again, when no other child runs
        self.running: dict[int, Child] = {}
        self.parent = os.getppid()
        self.asked = time.monotonic()

    def run(self) -> None:
        """Run until there is no more work to wait for."""
        try:
            while self._turn():
                pass
        finally:
            for child in self.running.values():
                child.kill()
            for child in self.running.values():
                child.ended()

    def _turn(self) -> bool:
        self._begin()
        ready, _, _ = select.select([self.inbox, *self.running], [], [], LOOK)
        for pipe in ready:
            if pipe == self.inbox:
                data = os.read(self.inbox, 1 << 20)
                if not data:
                    return False
                self.waiting += self.frames.add(data)
                self.asked = time.monotonic()
            else:
                self._hear(self.running[pipe])
        now = time.monotonic()
        for child in self.running.values():
            if now > child.until:
                child.late = True
                child.kill()
        if self.running:
            self.asked = now
        return os.getppid() == self.parent and now - self.asked < IDLE

    def _begin(self) -> None:
        if not self.waiting and not self.running and self.starved:
            self._start(self.starved.pop(0))
        while self.waiting and len(self.running) < self.most:
            self._start(self.waiting.popleft())

    def _start(self, job: dict[str, Any]) -> None:
        try:
            child = Child(job, self.work, self.folder)
        except OSError as error:
            self._tell(job, ("fault", ("a kernel's compiler could not be started", str(error))))
            return
        self.running[child.pipe] = child

    def _hear(self, child: Child) -> None:
        data = os.read(child.pipe, 1 << 20)
        if data:
            child.answer += data
            return
        del self.running[child.pipe]
        answer = child.ended()
        if _killed(answer) and not child.late and not child.job.get("again"):
            self.starved.append({**child.job, "again": True})
        else:
            self._tell(child.job, answer)

    def _tell(self, job: dict[str, Any], answer: Answer) -> None:
        send(self.outbox, (job["id"], *answer))


def send(stream: int, message: Any) -> None:
    """Write a whole message."""
    data = memoryview(framed(message))
    while data:
        data = data[os.write(stream, data) :]


def _killed(answer: Answer) -> bool:
    """Whether the system killed the child, or the assembler that it ran (-9: signal 9)."""
    return answer[0] == "fault" and any(
        text in part for part in answer[1] for text in ("signal 9:", "error code -9")
    )


def compiler() -> ModuleType:
    """`codegen.triton.compiler`, from the file beside this one: this process has no graftjit."""
    path = Path(__file__).with_name("compiler.py")
    spec = importlib.util.spec_from_file_location("graftjit_triton_compile", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """`compile_server.py FACTS`: JSON with the import path, the folder, the number of children."""
    facts = json.loads(sys.argv[1])
    inbox, outbox = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):  # output of triton must not get between the messages
        os.dup2(nothing, stream)
    for descriptor in (inbox, outbox):
        os.set_inheritable(descriptor, False)
    sys.path += [entry for entry in facts["path"] if entry not in sys.path]
    tempfile.tempdir = facts["folder"]
    try:
        module = compiler()
        try:
            module.prepare()
        except module.Fault as fault:
            send(outbox, (None, "fault", fault.args))
            return

        def work(job: dict[str, Any], folder: str) -> Answer:
            gc.disable()
            module.write_only_in(folder)
            try:
                found = module.compile_kernel(SimpleNamespace(**job), job["capability"])
            except module.Fault as fault:
                return "fault", fault.args
            return "done", tuple(found if job.get("ptx") else found._replace(ptx=""))

        gc.collect()
        gc.freeze()
        send(outbox, (None, "done", ()))
        Server(inbox, outbox, work, facts["folder"], facts["most"]).run()
    except BrokenPipeError:  # the client is gone
        return
    finally:
        shutil.rmtree(facts["folder"], ignore_errors=True)


if __name__ == "__main__":
    try:
        main()
    finally:
        os._exit(0)  # triton's libraries take time and print at the end of an interpreter
