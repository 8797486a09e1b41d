"""Compiled kernels of GPUs: the store, loading, what fails. A fake compiler and a fake driver; no triton, no GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from graftjit.codegen.build import cxx as build
from graftjit.codegen.triton import compile_client as workers
from graftjit.codegen.triton import cubins
from graftjit.codegen.triton.compiler import Fault
from graftjit.codegen.triton.renderer import TritonKernel
from graftjit.runtime.errors import BuildError
from graftjit.runtime.process.session import SESSION
from graftjit.runtime.store import bundle
from graftjit.runtime.store.store import KernelStore

from .driver import Driver

ELF = b"\x7fELF"


def kernel(name="k0_add", source="text", **facts):
    return TritonKernel(name, source, (("in0", "*fp32"), ("B", "constexpr")), {"B": 8}, 1, **facts)


class Compiler:
    """Answers as the worker processes do."""

    def __init__(self):
        self.jobs = []
        self.wrong = {}
        self.shared = self.scratch = 0

    def __call__(self, jobs):
        self.jobs += jobs
        return [self.wrong.get(job["name"]) or self.made(job) for job in jobs]

    def made(self, job):
        cubin = ELF + job["source"].encode()
        return job["name"], cubin, "", self.shared, job["warps"], 2, self.scratch, 30, 0


@pytest.fixture
def world(tmp_path, monkeypatch):
    """An empty store, a process that has loaded nothing, a compiler and a driver that take notes."""
    found = SimpleNamespace(compiler=Compiler(), driver=Driver(), folder=tmp_path)
    monkeypatch.setattr(cubins, "COMPILER", found.compiler)
    monkeypatch.setattr(cubins, "PROCESS", cubins._Process())
    monkeypatch.setattr(cubins, "driver", found.driver)
    found.monkeypatch = monkeypatch
    found.anew = lambda: monkeypatch.setattr(cubins, "PROCESS", cubins._Process())
    with SESSION.override(cache_dir=tmp_path / "store"):
        yield found


def files(world):
    return sorted((world.folder / "store" / "kernels").rglob("*.cubin"))


def test_compiled_once_then_loaded_from_this_process_then_from_the_store(world):
    first = cubins.load([kernel(warps=8)], 90)["k0_add"]
    assert (first.function, first.threads, first.hidden, first.cached) == (1001, 256, 2, False)
    assert (first.registers, first.stack, first.bytes) == (30, 0, 8)
    assert cubins.load([kernel(warps=8)], 90)["k0_add"] is first
    assert len(world.compiler.jobs) == len(world.driver.loaded) == 1
    world.anew()
    again = cubins.load([kernel(warps=8)], 90, stored=True)["k0_add"]
    assert again.cached and again.function == 1002 and again.threads == 256
    assert len(world.compiler.jobs) == 1 and world.driver.loaded[0] == world.driver.loaded[1]


def test_equal_kernels_are_one_and_others_are_not(world):
    same = [kernel(), kernel()]
    assert cubins.load(same, 90) and len(world.compiler.jobs) == 1
    others = [
        kernel(source="other"), kernel(warps=8), kernel(stages=1), kernel(fp_fusion=True),
        kernel(debug=True), kernel(aligned=(0,)), kernel(registers=128),
    ]  # fmt: skip
    functions = {cubins.load([one], 90)["k0_add"].function for one in others}
    functions.add(cubins.load([kernel()], 80)["k0_add"].function)
    assert len(functions) == len(others) + 1 and len(files(world)) == len(others) + 2


def test_the_grid_and_the_numbers_of_a_launch_are_no_part_of_a_cubin(world):
    cubins.load([kernel()], 90)
    many = TritonKernel("k0_add", "text", kernel().arguments, {"B": 8}, 4096)
    cubins.load([many], 90)
    assert len(world.compiler.jobs) == 1


def test_nothing_is_built_where_only_what_is_stored_is_asked_for(world):
    with pytest.raises(build.NotBuilt):
        cubins.load([kernel()], 90, stored=True)
    assert not world.compiler.jobs


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:-1] + b"!"]
)
def test_a_damaged_file_is_told_of_and_built_again(world, damage):
    cubins.load([kernel()], 90)
    (file,) = files(world)
    file.write_bytes(damage(file.read_bytes()))
    world.anew()
    mark = len(SESSION.log.of())
    assert not cubins.load([kernel()], 90)["k0_add"].cached
    codes = [getattr(event, "code", "") for event in SESSION.log.of()[mark:]]
    assert "FB307" in codes and len(world.compiler.jobs) == 2
    world.anew()
    assert cubins.load([kernel()], 90)["k0_add"].cached


def test_a_kernel_that_fails_costs_no_other(world):
    world.compiler.wrong["bad"] = Fault("Triton could not compile the kernel bad", "its own words")
    with pytest.raises(cubins.NotCompiled, match="kernel bad") as seen:
        cubins.load([kernel("one", "1"), kernel("bad", "2"), kernel("two", "3")], 90)
    assert "its own words" in str(seen.value) and list(seen.value.failed) == ["bad"]
    world.anew()
    assert cubins.load([kernel("one", "1"), kernel("two", "3")], 90, stored=True)


def test_more_shared_memory_than_the_device_has(world):
    world.compiler.shared = 100 << 10
    assert cubins.load([kernel()], 90)["k0_add"].shared == 100 << 10
    with pytest.raises(BuildError, match="shared memory") as seen:
        cubins.load([kernel()], 89)
    assert "101376" in str(seen.value) and len(files(world)) == 1


def test_scratch_memory_is_refused(world):
    world.compiler.scratch = 128
    with pytest.raises(BuildError, match="scratch"):
        cubins.load([kernel()], 90)


def test_a_driver_that_refuses_leaves_the_file(world):
    cubins.load([kernel()], 90)
    world.anew()

    def refuse(*_args):
        raise BuildError("no driver")

    world.driver.load = refuse
    with pytest.raises(BuildError, match="no driver"):
        cubins.load([kernel()], 90)
    assert len(files(world)) == 1


def test_a_bundle_needs_no_triton(world):
    cubins.load([kernel()], 90)
    saved = bundle.save(SESSION.store, world.folder / "kernels.bundle")
    assert saved.kernels == 1
    with SESSION.override(cache_dir=world.folder / "elsewhere"):
        moved = bundle.load(SESSION.store, world.folder / "kernels.bundle")
        assert (moved.kernels, moved.elsewhere) == (1, 0)
        world.anew()
        world.monkeypatch.setattr(workers, "identity", lambda: "")
        assert cubins.load([kernel()], 90, stored=True)["k0_add"].cached
        assert SESSION.store.bundled("cubin") and not SESSION.store.bundled()
        stats = SESSION.store.stats()
        assert (stats.files, stats.cubins) == (0, 1) and SESSION.store.clear() == 1


def test_another_triton_compiles_anew(world):
    cubins.load([kernel()], 90)
    world.anew()
    world.monkeypatch.setattr(workers, "identity", lambda: "triton 99")
    assert not cubins.load([kernel()], 90)["k0_add"].cached


def test_the_least_recently_used_go(world):
    for number in range(6):
        cubins.load([kernel(source=f"{number}" * 1000)], 90)
    store = KernelStore(world.folder / "store", limit=3000)
    store.prune()
    assert 0 < len(files(world)) < 4


def test_without_a_folder_kernels_live_in_this_process(world):
    (world.folder / "file").write_text("")
    with SESSION.override(cache_dir=world.folder / "file"):
        first = cubins.load([kernel()], 90)["k0_add"]
        assert cubins.load([kernel()], 90)["k0_add"] is first
    assert len(world.compiler.jobs) == 1


def test_kernels_that_nobody_holds_are_let_go(world, monkeypatch):
    monkeypatch.setattr(cubins, "KEPT", 2)
    held = cubins.load([kernel(source="held")], 90)["k0_add"]
    for number in range(4):
        cubins.load([kernel(source=str(number))], 90)
    assert len(cubins.PROCESS._alive) == 3
    assert cubins.load([kernel(source="held")], 90)["k0_add"] is held


def test_no_process_is_a_build_error(world):
    def nothing(_jobs):
        raise Fault("GPU kernels need triton, which is not installed", todo="pip install it")

    world.monkeypatch.setattr(cubins, "COMPILER", nothing)
    with pytest.raises(BuildError, match="pip install it"):
        cubins.load([kernel()], 90)


def test_an_event_tells_of_the_kernels_of_a_graph(world):
    mark = len(SESSION.log.of())
    cubins.load([kernel("a", "1"), kernel("b", "2")], 90, "graph", ["sin", "cos"])
    (event,) = [one for one in SESSION.log.of()[mark:] if type(one).__name__ == "KernelBuilt"]
    assert (event.name, event.cached, event.covers, event.bytes) == (
        "graph",
        False,
        ("sin", "cos"),
        10,
    )
