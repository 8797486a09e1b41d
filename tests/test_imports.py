"""What `import graftjit` costs and brings in, measured in fresh processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

FORBIDDEN = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "sympy")

# torch's import leaves its objects to a collection of garbage, which takes longer than ours and
# falls on whichever import allocates next: it is done before the clock starts.
_PROBE = """
import gc, json, sys, time
import torch
gc.collect()
before = set(sys.modules)
wall, cpu = time.perf_counter(), time.process_time()
import graftjit
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
imported = sorted(set(sys.modules) - before)
{then}
print(json.dumps({{"seconds": min(wall, cpu), "imported": imported,
                   "after": sorted(set(sys.modules) - before)}}))
"""

_USE = """
import math
import graftjit.runtime.doctor, graftjit.runtime.report.report, graftjit.runtime.guards.mirror
from graftjit.runtime.store.store import KernelStore

@graftjit.jit
def f(x, y):
    return torch.softmax(torch.sin(x) + y * 2, dim=-1).sum(0)

x = torch.randn(4, 8)
for _ in range(3):
    f(x, x)
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 4), torch.nn.ReLU())
with torch.no_grad():
    graftjit.compile(net)(x)
graftjit.compile(net)(x).sum().backward()
"""


def probe(then: str = "") -> dict:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GRAFTJIT_CHECK")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PROBE.format(then=then)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def forbidden(names: list[str]) -> list[str]:
    return [n for n in names if any(n == bad or n.startswith(bad + ".") for bad in FORBIDDEN)]


def test_import_is_quick_and_light():
    found = [probe()]
    # A loaded machine may be slow once; the design's bound holds for the best of three.
    while found[-1]["seconds"] >= 0.15 and len(found) < 3:
        found.append(probe())
    assert min(one["seconds"] for one in found) < 0.15
    assert forbidden(found[0]["imported"]) == []
    assert "triton" not in found[0]["imported"]


def test_use_stays_light():
    assert forbidden(probe(_USE)["after"]) == []
