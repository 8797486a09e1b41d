"""doctor: every row stands alone, what is missing says what to do; unsupported interpreters are refused."""

from __future__ import annotations

import json
import sys

import pytest

from graftjit.runtime import doctor
from graftjit.runtime.errors import UnsupportedPython
from graftjit.runtime.process import hardware as device
from graftjit.runtime.process import python_version as interpreter
from graftjit.runtime.process.session import SESSION
from graftjit.runtime.store.store import KernelStore


def by_name(checks):
    return {check.name: check for check in checks}


@pytest.fixture(scope="module")
def checks():
    return doctor.doctor()


def test_rows_that_are_always_there(checks):
    found = by_name(checks)
    names = {
        "python",
        "graftjit",
        "torch",
        "compiler",
        "processor",
        "vector set",
        "OpenMP",
        "GPU",
        "kernel store",
    }
    assert names <= set(found)
    assert found["python"].state == found["torch"].state == "ok"
    assert found["compiler"].state == "ok" and found["test kernel"].state == "ok"
    assert all(check.todo for check in checks if check.state == "fix")
    assert {check.state for check in checks} <= {"ok", "note", "fix"}


def test_rendering(checks):
    text = doctor.render(checks)
    assert max(len(line) for line in text.splitlines()) <= 100
    bad = sum(check.state == "fix" for check in checks)
    assert text.endswith("all is well" if bad == 0 else f"{bad} to fix")


def test_main_prints_and_tells_by_its_status(capsys, monkeypatch):
    good = [doctor.Check("a", "ok", "here"), doctor.Check("b", "note", "none", "install it")]
    monkeypatch.setattr(doctor, "doctor", lambda _more: good)
    assert doctor.main() == 0
    assert "-> install it" in capsys.readouterr().out
    monkeypatch.setattr(
        doctor, "doctor", lambda _more: [*good, doctor.Check("c", "fix", "broken", "x")]
    )
    assert doctor.main(as_json=True) == 1
    assert json.loads(capsys.readouterr().out)[2]["state"] == "fix"


def test_a_triton_that_is_missing_or_too_old_is_told(monkeypatch):
    for version, state, todo in (
        ("", "note", "graftjit"),
        ("3.5.1", "note", "triton>=3.6"),
        ("3.10.0", "ok", ""),
    ):
        monkeypatch.setattr(device, "triton_version", lambda version=version: version)
        found = by_name(doctor.doctor())["triton"]
        assert found.state == state and todo in found.todo


def test_a_gpu_has_rows_for_it_and_its_driver(monkeypatch):
    gpus = (device.Gpu("H", (9, 0), 1 << 34), device.Gpu("T", (7, 5), 1 << 34))
    monkeypatch.setattr(device, "gpus", lambda: gpus)
    monkeypatch.setattr(doctor.driver, "available", lambda: "libcuda.so.1 is not there")
    checks = doctor.doctor()
    rows = [check for check in checks if check.name == "GPU"]
    assert [row.state for row in rows] == ["ok", "note"] and "too old" in rows[1].found
    found = by_name(checks)["GPU driver"]
    assert found.state == "fix" and "libcuda" in found.found and "driver" in found.todo


def test_missing_compiler_is_told(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with SESSION.override(cxx="no-such-compiler"):
        assert device.find_compiler() is None
        found = by_name(doctor.doctor())
    assert found["compiler"].state == "fix" and "g++" in found["compiler"].todo
    assert "test kernel" not in found


def test_compiler_that_fails_is_told(tmp_path):
    broken = tmp_path / "broken-g++"
    broken.write_text("#!/bin/sh\necho 'cannot do that' >&2\nexit 3\n")
    broken.chmod(0o755)
    with SESSION.override(cxx=str(broken)):
        found = by_name(doctor.doctor())
    assert found["test kernel"].state == "fix" and found["test kernel"].found == "cannot do that"


def test_unwritable_store_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(SESSION, "_store", KernelStore(tmp_path / "file"))
    found = by_name(doctor.doctor())["kernel store"]
    assert found.state == "fix" and "GRAFTJIT_CACHE_DIR" in found.todo


def test_bad_and_unknown_variables_are_told(monkeypatch):
    monkeypatch.setenv("GRAFTJIT_THREADS", "many")
    monkeypatch.setenv("GRAFTJIT_CHEK", "1")
    found = by_name(doctor.doctor())
    assert found["environment"].state == "fix" and "GRAFTJIT_THREADS" in found["environment"].found
    assert "GRAFTJIT_CHECK" in found["GRAFTJIT_CHEK"].todo


def test_a_probe_that_fails_is_a_row(monkeypatch):
    def _gpu():
        raise RuntimeError("driver trouble")
        yield

    monkeypatch.setattr(doctor, "PROBES", (_gpu, doctor._python))
    failed, python = doctor.doctor()
    assert failed.state == "fix" and "driver trouble" in failed.found and python.name == "python"


@pytest.mark.parametrize(
    ("version", "name", "free"),
    [
        ((3, 10, 4), "cpython", False),
        ((3, 15, 0), "cpython", False),
        ((3, 11, 9), "pypy", False),
        ((3, 13, 1), "cpython", True),
    ],
)
def test_unsupported_pythons(version, name, free):
    with pytest.raises(UnsupportedPython) as caught:
        interpreter.require_supported(version, name, free)
    assert isinstance(caught.value, ImportError)
    assert "3.11, 3.12, 3.13" in str(caught.value) and "what to do" in str(caught.value)


def test_supported_pythons():
    for version in interpreter.SUPPORTED:
        interpreter.require_supported((*version, 1), "cpython", False)
    assert sys.version_info[:2] in interpreter.SUPPORTED


# --- device facts ---


def test_compiler_identity_follows_the_file(tmp_path, monkeypatch):
    fake = tmp_path / "my-clang++"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with SESSION.override(cxx="my-clang++ -m64"):
        first = device.find_compiler()
    assert first is not None and first.kind == "clang" and first.command == (str(fake), "-m64")
    fake.write_text("#!/bin/sh\n# another one\n")
    device._find_compiler.cache_clear()
    with SESSION.override(cxx="my-clang++ -m64"):
        assert device.find_compiler().identity != first.identity


def test_processor():
    cpu = device.cpu()
    assert cpu.isa in {"avx512", "avx2", "sve2", "neon", "sse2", "scalar"}
    assert cpu.vector_bits in (64, 128, 256, 512) and cpu.model and len(cpu.identity) == 16


def test_processor_without_cpuinfo(monkeypatch):
    monkeypatch.setattr(device, "_first_processor", dict)
    device.cpu.cache_clear()
    try:
        assert device.cpu().isa in {"sse2", "neon", "scalar"}
    finally:
        device.cpu.cache_clear()
