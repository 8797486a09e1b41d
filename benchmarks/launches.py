"""What a launch on a GPU costs the processor beside the driver's own time: `python -m benchmarks.launches`.

Programs of one and of many launches run in the native executor against a driver whose launch does nothing, compiled here: so this needs
no GPU. What one launch more costs is the difference, by the number of pointers and of numbers that it hands over.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

import torch

from graftjit.runtime.cuda import driver
from graftjit.runtime.executor import lower as executor
from graftjit.runtime.program.program import DeviceLaunch, ProgramSpec

ROUNDS, CALLS, MANY = 20, 2000, 32

# All that graftjit calls. One device, whose context is current; torch's stream is one of a number.
SOURCE = """
#define API extern "C" __attribute__((visibility("default"))) int
API cuInit(unsigned) { return 0; }
API cuDriverGetVersion(int *out) { return *out = 12040, 0; }
API cuGetErrorName(int, const char **) { return 1; }
API cuGetErrorString(int, const char **) { return 1; }
API cuDeviceGet(int *out, int) { return *out = 0, 0; }
API cuDevicePrimaryCtxRetain(void **out, int) { return *out = (void *)8, 0; }
API cuCtxGetCurrent(void **out) { return *out = (void *)8, 0; }
API cuCtxGetDevice(int *out) { return *out = 0, 0; }
API cuCtxPushCurrent_v2(void *) { return 0; }
API cuCtxPopCurrent_v2(void **) { return 0; }
API cuCtxSetCurrent(void *) { return 0; }
API cuStreamIsCapturing(void *, int *out) { return *out = 0, 0; }
API cuLibraryLoadData(void **out, void *, void *, void *, unsigned, void *, void *, unsigned) { return *out = (void *)8, 0; }
API cuLibraryGetKernel(void **out, void *, const char *) { return *out = (void *)8, 0; }
API cuLibraryUnload(void *) { return 0; }
API cuKernelSetAttribute(int, int, void *, int) { return 0; }
API cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) {
    return 0;
}
API aoti_torch_get_current_cuda_stream(int, void **out) { return *out = (void *)8, 0; }
"""


def idle_driver(folder: Path) -> str:
    source, target = folder / "driver.cpp", folder / "driver.so"
    source.write_text(SOURCE)
    compiler = os.environ.get("CXX", "g++")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", target, source], check=True)
    return str(target)


def nanoseconds(launches: int, pointers: int, numbers: int) -> float:
    """Of a call, at best."""
    handle, keep = driver.load(b"", "kernel")
    step = DeviceLaunch(
        "kernel", handle, tuple(place % 2 for place in range(pointers)), torch.device("cuda", 0), 1, 128, 0, 2,
        tuple(range(numbers)), "q" * numbers, keep,
    )  # fmt: skip
    run = executor.load(ProgramSpec("launches", 2, 2, (step,) * launches, (0,)))
    x, y = torch.zeros(16), torch.zeros(16)
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            run(x, y)
        best = min(best, time.perf_counter() - began)
    return best / CALLS * 1e9


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="graftjit-launches-") as folder:
        path = idle_driver(Path(folder))
        driver.DRIVER.use(path, path)
        print(f"a call of a program without a launch: {nanoseconds(0, 0, 0):.0f} ns")
        print("pointers  numbers  a call with one launch  a launch more")
        for pointers, numbers in ((2, 0), (4, 0), (4, 4), (12, 4)):
            one, many = (nanoseconds(count, pointers, numbers) for count in (1, 1 + MANY))
            print(f"{pointers:8}{numbers:9}{one:21.0f} ns{(many - one) / MANY:12.0f} ns")


if __name__ == "__main__":
    main()
