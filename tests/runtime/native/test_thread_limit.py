"""Programs use fewer threads while other processes take the cores, and all of them afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/loadavg").exists() or (os.cpu_count() or 1) < 2, reason="needs Linux, two cores"
)

PROGRAM = """
import sys, time, torch, graftjit
from graftjit.runtime import _native
torch.set_num_threads(2)
if "deterministic" in sys.argv: torch.use_deterministic_algorithms(True)
program = graftjit.jit(lambda x, y: (x @ y).softmax(-1).sum(0))
x, y = torch.randn(300, 300), torch.randn(300, 300)
end = time.monotonic() + float(sys.argv[1])
found = [program(x, y) for _ in range(3)]
while time.monotonic() < end and not _native.limited_calls():
    found.append(program(x, y))
assert all(torch.allclose(one, found[0], rtol=1e-4) for one in found)
assert torch.get_num_threads() == 2
print(_native.limited_calls())
"""


@pytest.fixture
def others() -> Iterator[None]:
    """Twice as many busy processes as there are cores."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    yield
    for one in busy:
        one.kill()
        one.wait()


def limited(*words: str, **variables: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=300,
        env={**os.environ, "GRAFTJIT_CHECK": "0", "GRAFTJIT_TRIALS": "0", **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_fewer_while_the_cores_are_taken(others: None) -> None:
    assert limited("60") > 0


def test_all_of_them_where_results_must_repeat(others: None) -> None:
    assert limited("2", "deterministic") == 0


def test_the_route_can_be_turned_off(others: None) -> None:
    assert limited("2", GRAFTJIT_WITHOUT="threads") == 0
