"""Compiler flags of a machine."""

import platform
import re
import subprocess

import pytest

from graftjit.codegen.build import cxx
from graftjit.codegen.build.flags import FLAGS
from graftjit.runtime.process import hardware

# The sum of sixteen lanes, as math.h has it.
FOLD = """
typedef float f32 __attribute__((vector_size(64)));
static inline __attribute__((always_inline)) f32 turned(f32 v, int by) {
  f32 r;
  for (int i = 0; i < 16; ++i) r[i] = v[(i + by) & 15];
  return r;
}
extern "C" void sums(const f32 *rows, float *result, long n) {
  for (long k = 0; k < n; ++k) {
    f32 v = rows[k];
#pragma GCC unroll 8
    for (int by = 8; by; by /= 2) v = v + turned(v, by);
    result[k] = v[0];
  }
}
"""
x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="a flag of x86")


@x86
def test_vectors_are_as_wide_as_registers_for_processors_where_gcc_prefers_256_bits(monkeypatch):
    """Lanes that move one by one made a small product 70 times slower on Intel's AVX-512."""
    compiler = hardware.find_compiler()
    if compiler is None or compiler.kind != "gcc":
        pytest.skip("no GCC")
    monkeypatch.setattr(cxx, "vector_bytes", lambda: 64)
    flags = [flag for flag in cxx.machine_flags() if flag != "-march=native"]
    call = [*compiler.command, *FLAGS, *flags, "-march=skylake-avx512", "-S", "-o", "-", "-"]
    made = subprocess.run(call, input=FOLD, capture_output=True, text=True, check=True).stdout
    instructions = re.findall(r"^\t[a-z]", made, flags=re.MULTILINE)
    assert len(instructions) < 60, made
