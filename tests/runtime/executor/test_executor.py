"""The native executor and its Python mirror run the same programs alike: values, identity, aliasing, errors."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import os
import subprocess
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from graftjit.ir.trace.autocast_cache import cached_cast
from graftjit.runtime import _native
from graftjit.runtime.executor import aten_calls as operators
from graftjit.runtime.executor import lower as executor
from graftjit.runtime.guards import tensor_access as tensors
from graftjit.runtime.process.session import SESSION
from graftjit.runtime.program.program import (
    Aten,
    Free,
    Launch,
    Scratch,
    Slot,
    View,
)

from ..programs import CPU, F32, alloc, spec

A = torch.ops.aten

KERNELS = """
extern "C" void axpy(void **b, int threads) {  // out = x + 2 y, 8 floats
    float *out = (float *)b[0]; const float *x = (const float *)b[1], *y = (const float *)b[2];
    for (int i = 0; i < 8; i++) out[i] = x[i] + 2 * y[i];
}
extern "C" void add_threads(void **b, int threads) { *(float *)b[0] = *(const float *)b[1] + threads; }
extern "C" void address(void **b, int threads) { *(long *)b[0] = (long)b[1]; }
extern "C" void aligned(void **b, int threads) { *(float *)b[0] = ((unsigned long)b[1] % 64 == 0) ? 1 : 0; }
"""


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("kernels")
    (folder / "k.cpp").write_text(KERNELS)
    compiler = os.environ.get("CXX", "g++")
    subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-o", folder / "k.so", folder / "k.cpp"], check=True
    )
    return ctypes.CDLL(str(folder / "k.so"))


def launch(library: ctypes.CDLL, name: str, *slots: int) -> Launch:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return Launch(name, address, slots, library)


@pytest.fixture(params=["native", "without operators", "without errors", "mirror"])
def load(request: pytest.FixtureRequest):
    """Each executor, and the native one with its slower ways."""
    if request.param == "mirror":
        tensors.bind(["program"])
    elif request.param != "native":
        tensors.bind([request.param.removeprefix("without ")])
    yield executor.load
    tensors.bind()


def test_which_executor(kernels):
    program = spec(2, 3, alloc(2, 8), launch(kernels, "axpy", 2, 0, 1), outputs=(2,))
    assert isinstance(executor.load(program), _native.Program)
    assert executor.load(program).routes == ("alloc", "launch")
    assert executor.load(program).spec is program
    try:
        tensors.bind(["wrap"])
        assert isinstance(executor.load(program), executor.PythonProgram)
        with pytest.raises(RuntimeError, match="native route"):
            _native.Program(program)
    finally:
        tensors.bind()


def test_a_cast_is_the_one_that_autocast_keeps(load):
    """The very tensor, in each executor; without a block around it, a new one each time."""
    step = Aten(cached_cast, (Slot(0), torch.bfloat16, CPU), {}, (1,))
    run = load(spec(1, 2, step, outputs=(1,)))
    if isinstance(run, _native.Program):
        native = operators.usable("operators" in SESSION.left_out)
        assert run.routes == ("cast" if native else "python",)
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.5]))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        first, second = run(weight)[0], run(weight)[0]
        assert first.dtype is torch.bfloat16 and first.tolist() == [1.0, -2.5]
        assert first.data_ptr() == second.data_ptr()
        torch.clear_autocast_cache()
        assert run(weight)[0].data_ptr() != first.data_ptr()
        assert run(weight.detach())[0].data_ptr() != run(weight.detach())[0].data_ptr()


def test_kernel(load, kernels):
    run = load(spec(2, 3, alloc(2, 8), launch(kernels, "axpy", 2, 0, 1), outputs=(2,)))
    assert (run.n_inputs, run.n_outputs) == (2, 1)
    x, y = torch.randn(8), torch.randn(16)[8:]
    for _ in range(3):
        (out,) = run(x, y)
        assert torch.equal(out, x + 2 * y)
        assert type(out) is torch.Tensor and not out.requires_grad and out.is_leaf
    first, second = run(x, y)[0], run(x, y)[0]
    assert first.data_ptr() != second.data_ptr()


def test_threads_follow_torch(load, kernels):
    run = load(spec(1, 2, alloc(1, 1), launch(kernels, "add_threads", 1, 0), outputs=(1,)))
    before = torch.get_num_threads()
    torch.use_deterministic_algorithms(True)  # all of them, also while other processes run
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert run(torch.zeros(1))[0].item() == threads
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(before)


def test_scratch_is_aligned_and_shared_by_no_two_calls(load, kernels):
    run = load(
        spec(
            2,
            6,
            Scratch(2, 0, 32),
            Scratch(3, 64, 32),
            launch(kernels, "axpy", 2, 0, 1),
            launch(kernels, "axpy", 3, 2, 1),
            alloc(4, 8),
            launch(kernels, "axpy", 4, 3, 1),
            alloc(5, 1),
            launch(kernels, "aligned", 5, 3),
            outputs=(4, 5),
            arena=128,
        )
    )
    failed = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(200):
            x, y = torch.randn(8, generator=generator), torch.randn(8, generator=generator)
            out, aligned = run(x, y)
            if not torch.equal(out, x + 2 * y + 2 * y + 2 * y) or aligned.item() != 1:
                failed.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def _where(kernels, nbytes: int, *more: Any, slots: int = 3):
    """A program that says where its scratch memory of so many bytes lies."""
    steps = (
        Scratch(1, 0, nbytes),
        *more,
        alloc(2, 1, dtype=torch.int64),
        launch(kernels, "address", 2, 1),
    )
    return executor.load(spec(1, slots, *steps, outputs=(2,), arena=nbytes))


def test_a_thread_keeps_one_workspace_for_all_programs(kernels):
    x = torch.zeros(1)
    large, small = _where(kernels, 1 << 20), _where(kernels, 4096)
    place = large(x)[0].item()
    assert small(x)[0].item() == place == large(x)[0].item()
    kept = _native.kept_workspace()
    assert 1 << 20 <= kept < 64 << 20
    elsewhere = []

    def work() -> None:
        assert _native.kept_workspace() == 0
        elsewhere.extend((small(x)[0].item(), small(x)[0].item(), _native.kept_workspace()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert elsewhere[0] == elsewhere[1] != place and elsewhere[2] == 4096
    _where(kernels, 100 << 20)(x)  # more than a thread keeps
    assert _native.kept_workspace() in (0, kept)


def test_a_run_inside_of_a_run_has_memory_of_its_own(kernels):
    x = torch.zeros(1)
    inner = _where(kernels, 4096)
    found = []
    names = torch.library.Library("graftjit_test_nested", "DEF")
    names.define("nested(Tensor x) -> Tensor")
    names.impl("nested", lambda x: found.append(inner(x)[0].item()) or x.clone(), "CPU")
    step = Aten(torch.ops.graftjit_test_nested.nested.default, (Slot(0),), {}, (3,))
    outer = _where(kernels, 1 << 16, step, slots=4)
    for _ in range(3):
        place = outer(x)[0].item()
        assert abs(found[-1] - place) >= 4096


def test_identity_of_inputs_constants_and_repeats(load):
    constant = torch.randn(3)
    run = load(
        spec(
            2,
            4,
            Aten(A.relu.default, (Slot(0),), {}, (3,)),
            outputs=(3, 0, 2, 3, 1, 0),
            constants={2: constant},
        )
    )
    x, y = torch.randn(2), torch.nn.Parameter(torch.randn(2))
    out = run(x, y)
    assert out[1] is x and out[5] is x and out[4] is y and out[2] is constant
    assert out[0] is out[3]
    assert torch.equal(out[0], x.relu())


def test_in_place_on_an_input(load):
    run = load(
        spec(2, 3, Aten(A.add_.Tensor, (Slot(0), Slot(1)), {"alpha": 3}, (2,)), outputs=(2,))
    )
    x, y = torch.randn(4), torch.randn(4)
    expected, version = x.add(y, alpha=3), x._version
    (out,) = run(x, y)
    assert out is x and x._version == version + 1
    assert torch.equal(x, expected)


def test_a_kernel_that_writes_to_an_input_moves_its_version(load, kernels):
    """As an operator in place does, so that backward refuses what it had saved."""
    step = launch(kernels, "axpy", 0, 0, 1)
    run = load(spec(2, 2, dataclasses.replace(step, writes=(0,)), outputs=(0,)))
    x, y, w = torch.randn(8), torch.randn(8), torch.ones(8, requires_grad=True)
    expected, loss = x + 2 * y, (w * x).sum()
    (out,) = run(x, y)
    assert out is x and x._version == 1 and y._version == 0
    assert torch.equal(x, expected)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_kernel_that_writes_through_a_view_moves_the_version(load, kernels):
    view = View(2, 0, (8,), (2,))
    step = launch(kernels, "aligned", 2, 1)
    run = load(spec(2, 3, view, dataclasses.replace(step, writes=(2,)), outputs=()))
    x = torch.zeros(16)
    run(x, torch.zeros(8))
    assert x._version == 1


def test_a_kernel_that_writes_to_an_inference_tensor_is_told_so(load, kernels):
    """After the fact, as operators in place tell it."""
    step = launch(kernels, "axpy", 0, 0, 1)
    run = load(spec(2, 2, dataclasses.replace(step, writes=(0,)), outputs=(0,)))
    with torch.inference_mode():
        x = torch.zeros(8)
        run(x, torch.ones(8))
    kind, text = raised(run, x, torch.ones(8))
    assert kind is RuntimeError
    assert text in (raised(x.zero_)[1], "graftjit: an operator failed")


def test_a_view_of_an_input_is_a_true_view(load):
    for view in (
        View(1, 0, (2, 2), (4, 1), 1, absolute=False),
        View(1, 0, (2, 2), (4, 1), 0, absolute=False),
        View(1, 0, (2, 2), (4, 1), 5, absolute=True),
    ):
        run = load(spec(1, 2, view, outputs=(1,)))
        base = torch.arange(20.0)
        x = base[4:]
        (out,) = run(x)
        offset = view.offset if view.absolute else view.offset + 4
        expected = torch.as_strided(base, view.shape, view.stride, offset)
        assert torch.equal(out, expected) and out.stride() == expected.stride()
        assert out._base is base and out.storage_offset() == offset
        version = base._version
        out.add_(1)
        assert base._version == version + 1 and x._version == version + 1


def test_views_inside_are_cheap_and_right(load):
    """A transposed weight that only a product reads needs no autograd view."""
    steps = (View(2, 1, (3, 4), (1, 3)), Aten(A.mm.default, (Slot(0), Slot(2)), {}, (3,)))
    run = load(spec(2, 4, *steps, outputs=(3,)))
    x, w = torch.randn(2, 3), torch.nn.Parameter(torch.randn(4, 3))
    if isinstance(run, _native.Program):
        assert run.routes[0] == "view"
    with torch.no_grad():
        assert torch.equal(run(x, w)[0], x @ w.t())


def test_views_that_are_written_stay_views():
    """Writing through a view, or giving out a view of it, needs the shared version counter."""
    view = View(1, 0, (4,), (2,))
    write = Aten(A.mul_.Scalar, (Slot(1), 2.0), {}, (2,))
    follow = Aten(A.slice.Tensor, (Slot(1), 0, 1), {}, (2,))
    read = Aten(A.relu.default, (Slot(1),), {}, (2,))
    assert executor.plain_views(spec(1, 3, view, write, outputs=())) == set()
    assert executor.plain_views(spec(1, 3, view, follow, outputs=(2,))) == set()
    assert executor.plain_views(spec(1, 3, view, follow, outputs=())) == {1}
    assert executor.plain_views(spec(1, 3, view, read, outputs=(2,))) == {1}
    assert executor.plain_views(spec(1, 3, view, outputs=(1,))) == set()
    assert executor.plain_views(spec(1, 3, view, View(2, 1, (2,), (1,)), outputs=(2,))) == set()


def test_free_and_slots_of_lists(load):
    run = load(
        spec(
            2,
            6,
            Aten(A.cat.default, ([Slot(0), Slot(1), Slot(0)], 1), {}, (2,)),
            Aten(A.stack.default, ([Slot(2), Slot(2)],), {}, (3,)),
            Free((2,)),
            Aten(A.index.Tensor, (Slot(3), [None, Slot(4)]), {}, (5,)),
            outputs=(5, 3),
            constants={4: torch.tensor([1, 0])},
        )
    )
    x, y = torch.randn(2, 3), torch.randn(2, 1)
    stacked = torch.stack([torch.cat([x, y, x], 1)] * 2)
    index, stack = run(x, y)
    assert torch.equal(stack, stacked) and torch.equal(index, stacked[:, [1, 0]])


def test_many_results_and_unneeded_ones(load):
    x = torch.randn(3, 5)
    run = load(spec(1, 3, Aten(A.sort.default, (Slot(0), 1), {}, (1, 2)), outputs=(2, 1)))
    values, order = x.sort(1)
    assert all(map(torch.equal, run(x), (order, values)))
    run = load(spec(1, 2, Aten(A.sort.default, (Slot(0), 1), {}, (None, 1)), outputs=(1,)))
    assert torch.equal(run(x)[0], order)
    run = load(spec(1, 2, Aten(A.split.Tensor, (Slot(0), 2, 1), {}, (None, 1, None)), outputs=(1,)))
    assert torch.equal(run(x)[0], x[:, 2:4])


def test_random_numbers_move_the_generator_as_eager(load):
    run = load(spec(1, 2, Aten(A.rand_like.default, (Slot(0),), {}, (1,)), outputs=(1,)))
    torch.manual_seed(3)
    expected = torch.rand(4), torch.rand(4)
    torch.manual_seed(3)
    assert torch.equal(run(torch.zeros(4))[0], expected[0])
    assert torch.equal(torch.rand(4), expected[1])


def raised(call: Any, *args: Any) -> tuple[type, str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011 (whatever eager raises)
        call(*args)
    return caught.type, str(caught.value)


ERRORS = [
    (A.mm.default, (torch.zeros(2, 3), torch.zeros(2, 3))),
    (A.sum.dim_IntList, (torch.zeros(2, 3), [7])),
    (A.index_select.default, (torch.zeros(3), 0, torch.tensor([9]))),
    (A.cat.default, ([torch.zeros(2, 2), torch.zeros(3, 3)], 1)),
    (A.linalg_cholesky.default, (-torch.eye(2),)),
    (A.sparse_sampled_addmm.default, (torch.zeros(2, 2), torch.zeros(2, 2), torch.zeros(2, 2))),
]


@pytest.mark.parametrize(("op", "args"), ERRORS, ids=lambda value: str(value)[:24])
def test_errors_are_torchs_own(load, op, args):
    inputs: list[torch.Tensor] = []
    slots = with_slots(args, inputs)
    n = len(inputs)
    run = load(spec(n, n + 1, Aten(op, slots, {}, (n,)), outputs=(n,)))
    assert raised(run, *inputs) == raised(op, *args)


def test_errors_release_everything(load):
    steps = (alloc(2, 1000), Aten(A.mm.default, (Slot(0), Slot(1)), {}, (3,)))
    run = load(spec(2, 4, *steps, outputs=(3,)))
    x, y = torch.zeros(2, 3), torch.zeros(2, 3)
    before = len(gc.get_objects())
    for _ in range(50):
        raised(run, x, y)
    gc.collect()
    assert len(gc.get_objects()) - before < 20


def test_wrong_calls(load):
    run = load(spec(2, 2, outputs=(0,)))
    with pytest.raises(TypeError, match="2 inputs was called with 1"):
        run(torch.zeros(1))
    with pytest.raises(TypeError, match="input 1 of a program is no tensor"):
        run(torch.zeros(1), 3)
    with pytest.raises(TypeError):
        run(torch.zeros(1), b=torch.zeros(1))


@pytest.mark.parametrize(
    "bad",
    [
        spec(1, 2, Free((9,)), outputs=(0,)),
        spec(3, 2, outputs=(0,)),
        spec(1, 2, Launch("none", 0, (0,)), outputs=(0,)),
        spec(1, 2, Scratch(1, 0, 64), outputs=(0,), arena=32),
        spec(1, 2, outputs=(5,)),
    ],
)
def test_bad_specs_are_refused(bad):
    with pytest.raises(ValueError, match="graftjit"):
        _native.Program(bad)


def test_an_empty_output_is_an_error_not_a_crash():
    with pytest.raises(SystemError, match="empty"):
        _native.Program(spec(1, 2, outputs=(0, 1)))(torch.zeros(1))


def test_autocast_is_the_graphs_own_matter(load):
    run = load(spec(2, 3, Aten(A.mm.default, (Slot(0), Slot(1)), {}, (2,)), outputs=(2,)))
    x, y = torch.randn(2, 2), torch.randn(2, 2)
    with torch.autocast("cpu"):
        (out,) = run(x, y)
        assert out.dtype is F32 and torch.equal(out, x.mm(y).float()) is False or out.dtype is F32
        assert torch.is_autocast_enabled("cpu")
        assert x.mm(y).dtype is torch.bfloat16


def test_no_gradient_is_recorded(load):
    run = load(spec(2, 3, Aten(A.mm.default, (Slot(0), Slot(1)), {}, (2,)), outputs=(2,)))
    x, w = torch.randn(2, 2), torch.nn.Parameter(torch.randn(2, 2))
    (out,) = run(x, w)
    assert not out.requires_grad and torch.is_grad_enabled()
    raised(run, x, torch.nn.Parameter(torch.zeros(3)))
    assert torch.is_grad_enabled()


def test_inference_mode(load, kernels):
    run = load(spec(2, 3, alloc(2, 8), launch(kernels, "axpy", 2, 0, 1), outputs=(2,)))
    with torch.inference_mode():
        (out,) = run(torch.zeros(8), torch.zeros(8))
    assert out.is_inference()


def test_warnings_are_pythons(load):
    run = load(
        spec(1, 2, Aten(A.std.correction, (Slot(0), [0]), {"correction": 5}, (1,)), outputs=(1,))
    )
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run(torch.ones(1))
    assert ["degrees of freedom" in str(warning.message) for warning in seen] == [True]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="degrees of freedom"):
            run(torch.ones(1))


def test_large_programs_let_other_threads_run():
    """Above a megabyte the interpreter is free meanwhile; results are the same."""
    run = executor.load(spec(2, 3, Aten(A.mm.default, (Slot(0), Slot(1)), {}, (2,)), outputs=(2,)))
    x, y = torch.randn(700, 700), torch.randn(700, 700)
    ticks, done = [0], threading.Event()

    def count() -> None:
        while not done.is_set():
            ticks[0] += 1
            done.wait(0.0005)

    thread = threading.Thread(target=count)
    thread.start()
    for _ in range(5):
        assert torch.allclose(run(x, y)[0], x @ y, atol=1e-3)
    done.set()
    thread.join()
    assert ticks[0] > 0


def test_more_slots_and_operands_than_fit_on_the_stack(load):
    n = 90
    steps = [Aten(A.add.Tensor, (Slot(i), Slot(i)), {}, (n + i,)) for i in range(n)]
    cat = Aten(A.cat.default, ([Slot(n + i) for i in range(n)],), {}, (2 * n,))
    run = load(spec(n, 2 * n + 1, *steps, cat, outputs=(2 * n,)))
    inputs = [torch.full((2,), float(i)) for i in range(n)]
    assert torch.equal(run(*inputs)[0], 2 * torch.cat(inputs))


def test_memory_stays_flat(kernels):
    run = executor.load(
        spec(
            2,
            7,
            alloc(2, 8),
            launch(kernels, "axpy", 2, 0, 1),
            View(3, 2, (2, 4), (4, 1)),
            Aten(A.sum.dim_IntList, (Slot(3), [1]), {}, (4,)),
            Aten(A.index.Tensor, (Slot(2), [Slot(5)]), {}, (6,)),
            outputs=(4, 2, 6),
            constants={5: torch.tensor([0])},
        )
    )
    x, y = torch.randn(8), torch.randn(8)
    for _ in range(100):
        run(x, y)
    before = resident()
    for _ in range(20000):
        run(x, y)
    assert resident() - before < 4 << 20


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_program_is_collected_with_what_it_keeps(kernels):
    import weakref

    constant = torch.zeros(3)
    program = executor.load(spec(1, 2, outputs=(0,), constants={1: constant}))
    seen = weakref.ref(constant)
    del constant
    assert seen() is not None
    del program
    gc.collect()
    assert seen() is None


# --- operators by entry point, against torch's own call ----------------------------------------------------


def with_slots(value: Any, inputs: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        inputs.append(value)
        return Slot(len(inputs) - 1)
    if isinstance(value, (list, tuple)):
        return type(value)(with_slots(item, inputs) for item in value)
    return value


def same(got: Any, expected: Any) -> bool:
    if not isinstance(expected, torch.Tensor):
        return got is expected
    if got.layout is not expected.layout:
        return False
    if expected.layout is not torch.strided:  # most operators refuse these
        return same(got.to_dense(), expected.to_dense())
    return (
        got.dtype == expected.dtype
        and got.shape == expected.shape
        and got.stride() == expected.stride()
        and torch.allclose(got, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    )


class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
    """The ATen calls below torch's calls, with their operands."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def database_calls() -> dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """One call of each ATen operator that torch's operator database reaches."""
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, Any] = {}
    for info in op_db:
        if F32 not in info.dtypes or info.name.startswith(
            ("svd", "linalg.", "jiterator", "sparse")
        ):
            continue
        samples = info.sample_inputs("cpu", F32)
        recorder = Recorder()
        try:
            sample = next(iter(samples))
            with warnings.catch_warnings(), recorder, torch.no_grad():
                warnings.simplefilter("ignore")
                info.op(sample.input, *sample.args, **sample.kwargs)
        except (RuntimeError, StopIteration, NotImplementedError, TypeError, ValueError):
            continue
        for op, args, kwargs in recorder.calls:
            found.setdefault(str(op), (op, args, kwargs))
    return found


@pytest.fixture
def filled_memory():
    """Fresh memory holds NaN, so that what an operator leaves unwritten (_ctc_loss does) compares alike."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.filterwarnings("ignore:.*deterministic")
@pytest.mark.slow
def test_operators_of_the_database_agree_with_torch(filled_memory):
    calls = database_calls()
    native = 0
    wrong = []
    for name, (op, args, kwargs) in calls.items():
        if op._schema.is_mutable or torch.Tag.nondeterministic_seeded in op.tags or "empty" in name:
            continue
        inputs: list[torch.Tensor] = []
        slots, named = (
            with_slots(args, inputs),
            {k: with_slots(v, inputs) for k, v in kwargs.items()},
        )
        plan = operators.plan(op, tuple(slots), named)
        if plan is None:
            continue
        native += 1
        expected = op(*args, **kwargs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        if not all(isinstance(value, torch.Tensor) for value in expected):
            continue
        n = len(inputs)
        results = tuple(range(n, n + len(expected)))
        run = executor.load(
            spec(n, n + len(expected), Aten(op, tuple(slots), named, results), outputs=results)
        )
        assert run.routes == ("aten",)
        if not all(map(same, run(*inputs), expected)):
            wrong.append(name)
    assert not wrong
    assert native > 250


def test_a_dtype_that_the_shim_does_not_know_is_left_to_a_call_of_python() -> None:
    """complex32 as an operator's argument: the program is native around it."""
    half = Aten(A._to_copy.default, (Slot(0),), {"dtype": torch.complex32}, (1,))
    back = Aten(A._to_copy.default, (Slot(1),), {"dtype": torch.complex64}, (2,))
    program = executor.load(spec(1, 3, half, back, outputs=(2,)))
    assert isinstance(program, _native.Program)
    x = torch.randn(3).half().to(torch.complex64)
    assert torch.equal(program(x)[0], x)


def test_lists_that_are_too_long_for_a_native_call():
    from graftjit import jit

    def stacked(x):
        return torch.stack([row.abs() for row in x])

    x = torch.arange(-600.0, 600.0).reshape(600, 2)
    run = jit(stacked)
    assert torch.equal(run(x), stacked(x))
    assert "FB303" not in [note.code for note in run.report().notes]
