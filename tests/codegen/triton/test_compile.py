"""The worker processes that compile Triton kernels: what they give, what goes wrong in them, how they end. No GPU."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from graftjit.codegen.triton import compile_client as workers
from graftjit.codegen.triton import compile_server as triton_server
from graftjit.codegen.triton import compiler as triton_compile
from graftjit.codegen.triton import cubins
from graftjit.codegen.triton.compiler import Fault

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

TEXT = """\
import triton
import triton.language as tl


@triton.jit
def {name}(inp, out, n, BLOCK: tl.constexpr):
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(inp + x, mask=x < n)
    {line}
    tl.store(out + x, v, mask=x < n)
"""


def job(name="twice", line="v = v * 2", **facts):
    return {
        "name": name,
        "source": TEXT.format(name=name, line=line),
        "arguments": (("inp", "*fp32"), ("out", "*fp32"), ("n", "i32"), ("BLOCK", "constexpr")),
        "constants": {"BLOCK": 256},
        "aligned": (0, 1), "warps": 4, "stages": 3, "fp_fusion": False, "debug": False, "registers": 0,
        "capability": 90, **facts,
    }  # fmt: skip


@pytest.fixture(scope="module")
def pool():
    found = workers.Workers()
    yield found
    found.close()


def binary(answer):
    assert not isinstance(answer, Fault), answer
    return triton_compile.Binary(*answer)


# -- what comes out ---------------------------------------------------------------------------------------------


@needs_triton
def test_kernels_come_back_in_order_and_what_fails_costs_no_other(pool):
    first, wrong, second = pool.compile(
        [job("one"), job("wrong", "v = tl.nothing(v)"), job("two", capability=80, ptx=True)]
    )
    assert (binary(first).name, binary(second).name) == ("one", "two")
    assert binary(first).cubin[:4] == b"\x7fELF" and binary(first).ptx == ""
    assert ".target sm_80" in binary(second).ptx
    assert binary(first).registers > 0 and binary(first).stack == 0 and binary(first).scratch == 0
    assert isinstance(wrong, Fault) and wrong.what == "Triton could not compile the kernel wrong"
    assert "nothing" in wrong.found
    assert pool.started == 1


@needs_triton
def test_the_same_as_in_this_process(pool):
    from types import SimpleNamespace

    (found,) = pool.compile([job("same", ptx=True)])
    here = triton_compile.compile_kernel(SimpleNamespace(**job("same")), 90)
    assert binary(found)[3:] == here[3:]


@needs_triton
def test_the_variables_of_this_process_do_not_count(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_KERNEL_DUMP", "1")
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(triton_compile.__file__).parent))  # has a triton.py
    pool = workers.Workers()
    (found,) = pool.compile([job()])
    pool.close()
    assert binary(found).cubin and not list(tmp_path.iterdir())


@needs_triton
def test_a_process_imports_neither_torch_nor_graftjit(pool):
    pool.compile([job()])
    maps = Path(f"/proc/{pool._server.process.pid}/maps").read_text()
    assert "libtriton" in maps and "libtorch" not in maps and "_native" not in maps


# -- what goes wrong --------------------------------------------------------------------------------------------


def serve(monkeypatch, tmp_path, text):
    """Workers of which the process has another package in triton's place."""
    package = tmp_path / "triton"
    package.mkdir()
    (package / "__init__.py").write_text(text)
    monkeypatch.setattr(workers, "place_of_triton", lambda: package)
    return workers.Workers()


def test_a_triton_that_cannot_be_imported_is_heard_once(monkeypatch, tmp_path):
    pool = serve(monkeypatch, tmp_path, "raise ImportError('libtriton.so is of another world')")
    for _attempt in range(2):
        with pytest.raises(Fault, match="cannot be imported") as seen:
            pool.compile([job()])
    assert "another world" in seen.value.found and pool.started == 1


def test_a_triton_that_kills_its_process(monkeypatch, tmp_path):
    pool = serve(monkeypatch, tmp_path, "import os; os.write(2, b'its last words'); os.abort()")
    with pytest.raises(Fault, match="ended") as seen:
        pool.compile([job()])
    assert "its last words" in seen.value.found and pool.started == workers.ATTEMPTS


def test_a_triton_that_is_too_old(monkeypatch, tmp_path):
    pool = serve(monkeypatch, tmp_path, "__version__ = '3.5.1'")
    with pytest.raises(Fault, match="too old") as seen:
        pool.compile([job()])
    assert seen.value.found == "3.5.1" and "triton>=3.6" in seen.value.todo and pool.started == 0


def test_no_triton(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(Fault, match="not installed"):
        workers.Workers().compile([job()])
    assert workers.identity() == "" and workers.missing() is not None


@needs_triton
def test_a_process_that_was_killed_is_replaced(pool):
    pool.compile([job()])
    before = pool.started
    os.kill(pool._server.process.pid, signal.SIGKILL)
    (found,) = pool.compile([job()])
    assert binary(found).cubin and pool.started in (before, before + 1)
    (found,) = pool.compile([job()])
    assert binary(found).cubin and pool.started == before + 1


# -- one server with other work than triton's -------------------------------------------------------------------

SERVER = f"""
import importlib.util, os, signal, sys, tempfile, time
spec = importlib.util.spec_from_file_location("server", {triton_server.__file__!r})
server = importlib.util.module_from_spec(spec)
spec.loader.exec_module(server)

def work(job, folder):
    open(os.path.join(folder, "left"), "w").close()
    if job["do"] == "kill" and not job.get("again"):
        os.kill(os.getpid(), signal.SIGKILL)
    if job["do"] == "starve":
        os.kill(os.getpid(), signal.SIGKILL)
    if job["do"] == "crash":
        os.write(2, b"bang")
        os.abort()
    if job["do"] == "raise":
        raise MemoryError("too much")
    if job["do"] == "hang":
        import subprocess
        subprocess.run(["sleep", "600"])
    return "done", (job["do"], os.getpid(), os.getppid())

server.IDLE = float(sys.argv[2])
server.Server(0, 1, work, sys.argv[1], 2).run()
"""


class Direct:
    """A server's process, with jobs that do as they are told."""

    def __init__(self, folder, idle=20.0):
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", SERVER, str(folder), str(idle)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        self.frames = triton_server.Frames()
        self.answers = {}

    def ask(self, *names, seconds=20.0):
        for name in names:
            one = {"id": name, "name": name, "do": name.split("-")[0], "seconds": seconds}
            self.process.stdin.write(triton_server.framed(one))

    def hear(self, count):
        while len(self.answers) < count:
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data
            for name, state, values in self.frames.add(data):
                self.answers[name] = (state, values)
        return self.answers

    def end(self):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


def test_children_that_crash_hang_or_are_killed(tmp_path):
    server = Direct(tmp_path)
    server.ask("kill", "starve", "crash", "raise", "fine-1", "fine-2")
    found = dict(server.hear(6))
    assert found["fine-1"][0] == found["fine-2"][0] == found["kill"][0] == "done"
    assert "most likely the system had no memory" in found["starve"][1][1]
    assert "crashed" in found["crash"][1][0] and "bang" in found["crash"][1][1]
    assert "MemoryError: too much" in found["raise"][1][1]
    server.answers.clear()
    server.ask("hang", seconds=0.2)
    assert "took longer than" in server.hear(1)["hang"][1][0]
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    server.end()
    assert children == "" and list(tmp_path.iterdir()) == []


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] not in "ZX"
    except OSError:
        return False


def gone(processes, seconds=10.0):
    end = time.monotonic() + seconds
    while any(map(alive, processes)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(alive, processes))


def children(process):
    try:
        return [
            int(p) for p in Path(f"/proc/{process}/task/{process}/children").read_text().split()
        ]
    except OSError:
        return []


def test_children_go_with_the_server_and_the_server_with_its_input(tmp_path):
    server = Direct(tmp_path)
    server.ask("hang")
    while not (below := children(server.process.pid)) or not children(below[0]):
        time.sleep(0.01)
    deeper = children(below[0])
    server.end()
    assert gone([*below, *deeper]) and list(tmp_path.iterdir()) == []


def test_children_go_with_a_server_that_is_killed(tmp_path):
    server = Direct(tmp_path)
    server.ask("hang")
    while not (below := children(server.process.pid)):
        time.sleep(0.01)
    server.process.kill()
    server.end()
    assert gone(below)


def test_a_server_without_work_ends(tmp_path):
    server = Direct(tmp_path, idle=0.1)
    server.ask("fine")
    assert server.hear(1)["fine"][0] == "done"
    assert server.process.wait(20) == 0
    server.end()


# -- the parent's end -------------------------------------------------------------------------------------------

PARENT = """
import json, os, signal, sys, time
from graftjit.codegen.triton import compile_client as workers
job = json.loads(sys.argv[1])
assert len(workers.WORKERS.compile([job])[0]) > 5
server = workers.WORKERS._server
print(server.process.pid, server.folder, flush=True)
if sys.argv[2] == "fork":
    child = os.fork()
    if child == 0:
        time.sleep(30)
    print(child, flush=True)
if sys.argv[2] != "end":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_triton
@pytest.mark.parametrize("how", ["end", "kill", "fork"])
def test_nothing_is_left_when_the_parent_ends(how):
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", PARENT, json.dumps(job()), how],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONWARNINGS": "error::ResourceWarning"},
    ) if how != "fork" else _forked(job())  # fmt: skip
    server, folder, *child = done.stdout.split()
    try:
        assert gone([int(server)])
        end = time.monotonic() + 5
        while Path(folder).exists() and time.monotonic() < end:
            time.sleep(0.02)
        assert not Path(folder).exists()
        assert "ResourceWarning" not in done.stderr and "Traceback" not in done.stderr
    finally:
        for process in child:
            os.kill(int(process), signal.SIGKILL)


def _forked(one):
    """The child that lives on keeps the pipes of its parent's output, so they are files."""
    import tempfile

    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        code = subprocess.run(
            [sys.executable, "-c", PARENT, json.dumps(one), "fork"],
            stdout=out, stderr=errors, check=False, timeout=60,
        ).returncode  # fmt: skip
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess([], code, out.read(), errors.read())


@needs_triton
def test_a_forked_child_has_its_own(pool):
    pool.compile([job()])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            pool.after_fork()
            (found,) = pool.compile([job()])
            os.write(write, b"%d" % pool.started)
            pool.close()
            code = 0 if len(found) > 5 else 2
        finally:
            os._exit(code)
    os.close(write)
    _process, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0 and os.read(read, 9) != b""
    os.close(read)
    (found,) = pool.compile([job()])
    assert binary(found).cubin


@needs_triton
def test_doctor_compiles_a_kernel(monkeypatch):
    from graftjit.codegen.triton import probe as gpu_probe

    (found,) = gpu_probe.kernels()
    assert found.state == "ok" and "sm_90" in found.found
    monkeypatch.setattr(workers, "_SERVER", Path("/nonexistent"))
    (found,) = gpu_probe.kernels()
    assert found.state == "note" and "ended" in found.found and found.todo
    monkeypatch.setitem(sys.modules, "triton", None)
    assert not list(gpu_probe.kernels())


@needs_triton
def test_threads_compile_side_by_side(pool):
    found = []
    threads = [
        threading.Thread(target=lambda n=n: found.extend(pool.compile([job(f"t{n}")])))
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(binary(one).name for one in found) == ["t0", "t1", "t2"]


@needs_triton
def test_no_descriptor_stays(pool):
    one = workers.Workers()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    one.compile([job()])
    one.close()
    end = time.monotonic() + 5
    while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < end:
        time.sleep(0.02)
    assert len(os.listdir("/proc/self/fd")) <= before


@needs_triton
def test_real_kernels_from_text_to_store(tmp_path, monkeypatch):
    """Everything but the driver. What was stored is found without a process."""
    from graftjit.codegen.triton.renderer import TritonKernel
    from graftjit.runtime.process.session import SESSION

    from .driver import Driver

    driver = Driver()
    monkeypatch.setattr(cubins, "driver", driver)
    monkeypatch.setattr(cubins, "PROCESS", cubins._Process())
    facts = {name: value for name, value in job().items() if name != "capability"}
    kernel = TritonKernel(**facts, programs=1)
    with SESSION.override(cache_dir=tmp_path):
        first = cubins.load([kernel], 90)["twice"]
        started = workers.WORKERS.started
        monkeypatch.setattr(cubins, "PROCESS", cubins._Process())
        again = cubins.load([kernel], 90)["twice"]
    assert again.cached and not first.cached and first.hidden == again.hidden == 2
    assert workers.WORKERS.started == started and driver.loaded[0] == driver.loaded[1]
