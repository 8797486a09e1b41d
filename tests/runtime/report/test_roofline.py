"""What the machine can do, measured once and kept; and how near steps come to it."""

from pathlib import Path
from typing import Any

import pytest
import torch

import graftjit
from graftjit.runtime.events import events
from graftjit.runtime.process.session import SESSION
from graftjit.runtime.report import roofline
from graftjit.runtime.report.folds import Folding
from graftjit.runtime.report.program_folds import beats_the_roof
from graftjit.runtime.report.report import Report, report_of
from graftjit.runtime.report.roofline import judged

ROWS = (
    ("memory", 1e6, 100e9), ("memory", 1e8, 10e9), ("f32", 0.0, 50e9), ("f64", 0.0, 25e9),
)  # fmt: skip


def test_it_is_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "_known", {})
    with SESSION.override(cache_dir=tmp_path):
        first = roofline.roofs()
        assert all(rate > 1e6 for _, _, rate in first)
        assert [what for what, _, _ in first] == ["memory"] * 3 + ["f32", "f64", "bf16"]
        monkeypatch.setattr(roofline, "_known", {})
        monkeypatch.setattr(roofline, "_measured", lambda: pytest.fail("measured again"))
        assert roofline.roofs() == first
        with SESSION.override(roofline=False):
            assert roofline.roofs() == ()


@pytest.mark.parametrize(
    ("seconds", "moved", "flops", "dtype", "expected"),
    [
        (2e-3, 10**7, 0, "f32", (0.5, "memory")),  # 1 ms from memory
        (1e-4, 10**6, 0, "f32", (0.1, "memory")),  # 10 us from the cache
        (4e-3, 10**6, 10**8, "f32", (0.5, "compute")),
        (4e-3, 10**6, 10**8, "f64", (1.0, "compute")),
        (4e-3, 10**6, 10**8, "i32", (0.5, "compute")),  # as float32
        (1e-5, 10**4, 10**3, "f32", (0.01, "overhead")),
        (1e-9, 10**9, 0, "f32", (1e8, "memory")),  # the machine can do more than was measured
        (0.0, 10**9, 0, "f32", (0.0, "")),
    ],
)
def test_the_roofline(seconds: float, moved: int, flops: int, dtype: str, expected: Any) -> None:
    share, bound = judged(ROWS, seconds, moved, flops, dtype)
    assert (pytest.approx(share, rel=1e-6), bound) == expected
    assert judged((), seconds, moved, flops, dtype) == (0.0, "")


def test_reports_judge_what_they_have_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By limits that no processor reaches, for those of this one are low where they are measured while others use it."""
    fast = tuple((what, most, 2e12) for what, most, _ in ROWS)
    monkeypatch.setattr(roofline, "_known", {})
    monkeypatch.setattr(roofline, "_recalled", lambda *_: fast)

    @graftjit.jit
    def f(x: Any, w: Any) -> Any:
        return torch.softmax(x @ w, -1).exp().sum(0)

    x, w = torch.randn(256, 256), torch.randn(256, 512)
    with SESSION.override(check=False), torch.no_grad():
        for _ in range(20):
            f(x, w)
        seen = graftjit.report(f)
        with SESSION.override(roofline=False):
            unreported = graftjit.report(f)
    heavy = max(seen.kernels, key=lambda kernel: kernel.flops)
    assert 0 < heavy.share <= 1 and heavy.bound in ("memory", "compute")
    assert all(kernel.share == 0 and not kernel.bound for kernel in unreported.kernels)


def _told(seconds: float, roofs: Any, varied: bool = False) -> list[events.Event]:
    """A program of one step that moves a MB, timed."""
    step = events.StepFacts(
        name="k0", kind="kernel", device="cpu", reads=500_000, writes=500_000, dtype="f32"
    )
    return [
        events.Compiled(frame="f", entry=1, graph="g", steps=(step,), varied=varied),
        events.Timed(frame="f", entry=1, graph="g", roofs=roofs, steps=(("k0", seconds, 3),)),
    ]


def test_a_step_over_open_sizes_is_not_rated() -> None:
    """Its facts are of the sizes at capture, its times of those of the calls."""
    (known,) = Report("f", tuple(_told(1e-3, ROWS))).kernels
    (open_,) = Report("f", tuple(_told(1e-3, ROWS, varied=True))).kernels
    assert known.share > 0
    assert known.reads == 500_000
    assert (open_.share, open_.bound, open_.reads, open_.flops) == (0.0, "", 0, 0)
    assert open_.seconds == 1e-3


def test_a_share_beyond_all_of_it_is_a_sign() -> None:
    """A step that is quicker than the machine: the machine is measured again, and what is quicker still is not judged."""
    quick = tuple(_told(1e-7, ROWS))
    assert beats_the_roof(Folding(quick))
    assert not beats_the_roof(Folding(_told(1e-3, ROWS)))
    (kernel,) = Report("f", quick).kernels
    assert (kernel.share, kernel.bound) == (0.0, "")


def test_the_machine_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The better of two measurements of each row holds, here and in later processes."""
    monkeypatch.setattr(roofline, "_again", [])
    monkeypatch.setattr(roofline, "_known", {})
    slow = tuple((what, most, 1.0) for what, most, _ in ROWS)
    with SESSION.override(cache_dir=tmp_path):
        monkeypatch.setattr(roofline, "_measured", lambda: slow)
        assert roofline.roofs() == slow
        monkeypatch.setattr(roofline, "_measured", lambda: ROWS)
        report = report_of("f", [], _told(1e-3, slow))
        (timed,) = (e for e in report.events if isinstance(e, events.Timed))
        assert timed.roofs == ROWS
        assert report.kernels[0].share > 0
        monkeypatch.setattr(roofline, "_known", {})
        assert roofline.roofs() == ROWS


def test_how_often_the_machine_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    now = [1000.0]
    monkeypatch.setattr(roofline, "_again", [])
    monkeypatch.setattr(roofline, "_known", {})
    monkeypatch.setattr(roofline, "_recalled", lambda *_: ROWS)
    monkeypatch.setattr(roofline, "_measured", lambda: measured.append(0) or ROWS)
    monkeypatch.setattr(roofline.notes, "keep", lambda *_: None)
    monkeypatch.setattr(roofline.time, "monotonic", lambda: now[0])
    for _ in range(5):
        roofline.again()
    assert len(measured) == roofline.MOST
    now[0] += 61
    for _ in range(5):
        roofline.again()
    assert len(measured) == roofline.MOST + 1
