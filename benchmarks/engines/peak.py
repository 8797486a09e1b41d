"""What this machine can compute at most: float32 operations a second of a loop of fused
multiply-adds.

The loop is C++ for the machine's widest vectors, without loads and stores; it runs in as many
threads as torch has. A model's share of the peak is its operations over its time and this rate.
Without a C++ compiler there is no rate.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

CHAINS, LANES = 16, 16
OPERATIONS_A_STEP = CHAINS * LANES * 2
STEPS = 4_000_000
TIMES = 5
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-mprefer-vector-width=512", "-shared",
         "-fPIC", "-w", "-x", "c++")  # fmt: skip

SOURCE = f"""
typedef float vector __attribute__((vector_size({LANES * 4})));
extern "C" float chains(long steps, float factor, float term) {{
    vector x[{CHAINS}], a = vector{{}} + factor, b = vector{{}} + term, sum = vector{{}};
    for (int i = 0; i < {CHAINS}; ++i) x[i] = b + (float)i;
    for (long step = 0; step < steps; ++step)
        #pragma GCC unroll {CHAINS}
        for (int i = 0; i < {CHAINS}; ++i) x[i] = x[i] * a + b;
    for (int i = 0; i < {CHAINS}; ++i) sum += x[i];
    return sum[0];
}}
"""


def rate(steps: int = STEPS) -> float | None:
    """The best of some measurements: other work of the machine can only take away."""
    from graftjit.runtime.process import hardware

    compiler = hardware.find_compiler()
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="graftjit-bench-") as folder:
        library = Path(folder) / "fma.so"
        command = [*compiler.command, *FLAGS, "-", "-o", str(library)]
        done = subprocess.run(command, input=SOURCE, text=True, capture_output=True, check=False)
        if done.returncode != 0:  # no x86, say: those flags are unknown there
            return None
        chains = ctypes.CDLL(str(library)).chains
    chains.argtypes, chains.restype = (ctypes.c_long, *[ctypes.c_float] * 2), ctypes.c_float
    threads = torch.get_num_threads()
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(TIMES):
            start = time.perf_counter()
            list(pool.map(lambda _: chains(steps, 0.5, 1.0), range(threads)))
            seconds = time.perf_counter() - start
            best = max(best, threads * steps * OPERATIONS_A_STEP / seconds)
    return best
