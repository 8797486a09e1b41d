"""Large units are compiled in parts, side by side, and become one library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import graftjit
from graftjit.codegen.build import cxx as build
from graftjit.codegen.build import translation_units as units
from graftjit.runtime.errors import BuildError
from graftjit.runtime.process.session import SESSION


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[int]]:
    """Three processors, and a bound that small units pass; how many parts each library was made of."""
    made: list[int] = []
    plain = units.compile_parts

    def compile_parts(texts: Any, *rest: Any) -> Any:
        built = plain(texts, *rest)
        made.append(0 if built is None else len(texts))
        return built

    monkeypatch.setattr(units, "SMALL", 300)
    monkeypatch.setattr(units, "processors", lambda: 3)
    monkeypatch.setattr(units, "compile_parts", compile_parts)
    with SESSION.override(cache_dir=tmp_path):
        yield made


def several(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Kernels of several kinds, with a product of the library between them."""
    y = torch.softmax(x, -1) * 2
    z = (y @ w).tanh().cumsum(0) + 1
    return y, z, (z @ w).exp().sum(0), torch.nn.functional.layer_norm(z.t() @ x, (96,))


def test_one_library_of_parts(in_parts: list[int]) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(96, 96), torch.randn(96, 96) / 10
    found, expected = graftjit.jit(several)(x, w), several(x, w)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert in_parts == [3]


KERNELS = "".join(
    f'extern "C" void k{n}(void **buffers, int threads) {{\n  *(int *)buffers[0] = {n};\n}}\n'
    for n in range(5)
)
HEAD = 'extern "C" {\ndouble sin(double);\n}\nextern "C" void *dlopen(const char *, int);\nnamespace w16 {\nstruct full {};\n'


def test_each_kernel_is_in_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    text = HEAD + KERNELS + "}\n"
    assert units.parts(text, 3) == [text]  # small
    monkeypatch.setattr(units, "SMALL", 10)
    assert units.parts(text, 1) == [text]
    assert len(units.parts(text, 9)) == 5
    found = units.parts(text, 3)
    assert len(found) == 3
    for part in found:
        assert part.startswith(HEAD) and part.endswith("}\n}\n")
        assert part.count("{") == part.count("}")
    for number in range(5):
        assert sum(f" k{number}(" in part for part in found) == 1


def test_a_part_that_fails_is_told_of(in_parts: list[int], tmp_path: Path) -> None:
    """The unit is compiled whole then, and the compiler's words are those of a whole unit."""
    broken = HEAD + KERNELS.replace("= 3;", "= nothing;") + "}\n"
    with pytest.raises(BuildError, match="nothing"):
        build.load(broken, ["k0"])
    assert in_parts == [] or in_parts == [0]
    assert not list(tmp_path.rglob("*.so"))
