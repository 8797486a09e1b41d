"""Many programs through few processes: forked workers that run seeds one after the other, and a fresh child for a finding.

A fork a program costs more than the program. So a worker runs a chunk of seeds; it leaves when the chunk is done, and
at its first finding, crash or time-out. What it found is then asked of a fresh child (`check_apart`), because a program
may fail only for what earlier ones left behind in its process: such a finding is told as one, with the seeds before it.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

import torch

CHUNK = 200  # programs a worker: its memory grows with what they leave behind
Check = Callable[[int], str | None]


@dataclass(slots=True)
class Worker:
    """A forked process with its seeds; `done` of them have answered."""

    pid: int
    answers: Connection
    seeds: list[int]
    done: int = 0


@dataclass(slots=True)
class Pool:
    """`run` yields (seed, what differs or None) for each seed, in the order in which they are done."""

    check: Check  # in the process it is called in; must not run longer than `seconds`
    jobs: int
    seconds: int
    waiting: deque[list[int]] = field(default_factory=deque)
    workers: list[Worker] = field(default_factory=list)

    def run(self, seeds: Iterable[int]) -> Iterator[tuple[int, str | None]]:
        every = list(seeds)
        size = max(1, min(CHUNK, len(every) // self.jobs))
        self.waiting.extend(every[n : n + size] for n in range(0, len(every), size))
        gc.collect()
        gc.freeze()  # a collection in a child would copy every page of the parent
        try:
            while self.waiting or self.workers:
                while self.waiting and len(self.workers) < self.jobs:
                    self.workers.append(self._start(self.waiting.popleft()))
                ready = wait([worker.answers for worker in self.workers])
                for worker in [w for w in self.workers if w.answers in ready]:
                    yield from self._hear(worker)
        finally:
            for worker in self.workers:
                os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)
            gc.unfreeze()

    def _start(self, seeds: list[int]) -> Worker:
        reader, writer = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            reader.close()
            _work(self.check, seeds, writer, self.seconds)
        writer.close()
        return Worker(pid, reader, seeds)

    def _hear(self, worker: Worker) -> Iterator[tuple[int, str | None]]:
        """One answer, or the worker's end: whatever it has not done goes back to the queue."""
        try:
            what = pickle.loads(worker.answers.recv_bytes())
        except EOFError:
            what = None
            died = self._buried(worker)
            if worker.done == len(worker.seeds):
                return
            what = died or "the worker left without an answer"
        else:
            if what is None:
                worker.done += 1
                yield worker.seeds[worker.done - 1], None
                return
            self._buried(worker)
        number = worker.done
        if rest := worker.seeds[number + 1 :]:
            self.waiting.appendleft(rest)
        yield worker.seeds[number], self._confirmed(what, worker.seeds[: number + 1])

    def _buried(self, worker: Worker) -> str | None:
        self.workers.remove(worker)
        worker.answers.close()
        return death(os.waitpid(worker.pid, 0)[1])

    def _confirmed(self, what: str, seeds: list[int]) -> str:
        again = apart(lambda: self.check(seeds[-1]), self.seconds)
        if again is not None:
            return again
        return f"only after {seeds[:-1]} in one process: {what}" if seeds[:-1] else f"once: {what}"


def _work(check: Check, seeds: list[int], answers: Connection, seconds: int) -> None:
    """The life of a worker; never returns."""
    torch.set_num_threads(1)  # a fork has none of OpenMP's threads: waiting for them has no end
    gc.disable()  # what dies within a program must not depend on what the ones before it left
    for number, seed in enumerate(seeds, 1):
        if number % 10 == 0:
            gc.collect()
        # Processor time: a machine that is busy, or stops its jobs, must not look like an endless loop. What waits
        # for ever uses none, and is ended by the clock.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.alarm(30 * seconds)
        try:
            what = check(seed)
        except BaseException:
            what = "the fuzzer failed\n" + traceback.format_exc()
        answers.send_bytes(pickle.dumps(what))
        if what is not None:
            break
    os._exit(0)


def apart(check: Callable[[], str | None], seconds: int) -> str | None:
    """`check` in a forked child: a crash, an endless loop, a damaged interpreter stay there."""
    reader, writer = Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        reader.close()
        _work(lambda _seed: check(), [0], writer, seconds)
    writer.close()
    try:
        answer: str | None = pickle.loads(reader.recv_bytes())
    except EOFError:
        answer = "the child left without an answer"
    reader.close()
    return death(os.waitpid(child, 0)[1]) or answer


def death(status: int) -> str | None:
    if not os.WIFSIGNALED(status):
        return None
    name = signal.Signals(os.WTERMSIG(status)).name
    return f"the child died of {name}" + (" (time is up)" if name in ("SIGALRM", "SIGPROF") else "")
