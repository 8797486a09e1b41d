"""The keywords of `torch.compile` that `jit` and `compile` take."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch

import graftjit
from graftjit import JitConfig
from graftjit.runtime.errors import OptionError
from graftjit.torch_keywords import changes

NET = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
X = torch.randn(3, 4)


def twice(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


MEANINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"mode": None}, {}),
    ({"mode": "default"}, {}),
    ({"mode": "reduce-overhead"}, {"exec_mode": "sink"}),
    ({"mode": "max-autotune"}, {"jit_level": "O2"}),
    ({"mode": "max-autotune-no-cudagraphs"}, {"jit_level": "O2", "exec_mode": "no_sink"}),
    ({"mode": "lite"}, {"jit_level": "O0"}),
    ({"backend": "inductor"}, {}),
    ({"backend": "graftjit"}, {}),
    ({"backend": "eager"}, {"jit_level": "O0"}),
    ({"backend": "aot_eager"}, {"jit_level": "O0"}),
    ({"options": None}, {}),
    ({"options": {"max_autotune": True}}, {"jit_level": "O2"}),
    ({"options": {"triton.cudagraphs": True}}, {"exec_mode": "sink"}),
    ({"options": {"max_autotune": False, "triton.cudagraphs": False}}, {}),
    ({"options": {"never_slower": False}}, {"never_slower": False}),
    ({"recompile_limit": 3}, {"recompile_limit": 3}),
    ({"recompile_limit": None, "name": "mine", "isolate_recompiles": True}, {}),
]


@pytest.mark.parametrize(("given", "means"), MEANINGS, ids=lambda found: str(found))
def test_each_means_options(given: dict[str, Any], means: dict[str, Any]) -> None:
    assert changes(given) == means
    fast = graftjit.jit(twice, **given)
    assert fast._unit.config == JitConfig().replace(**means)
    assert torch.allclose(fast(X), twice(X))
    assert torch.allclose(graftjit.jit(**given)(twice)(X), twice(X))
    net = graftjit.compile(NET, **given)
    assert torch.allclose(net(X), NET(X))
    assert torch.allclose(copy.deepcopy(net)(X), NET(X))


def test_every_keyword_of_torch_is_taken_or_refused_by_name() -> None:
    left_out = {"shapes_spec"}
    for name in set(inspect.signature(torch.compile).parameters) - {"model"} - left_out:
        default = inspect.signature(torch.compile).parameters[name].default
        graftjit.jit(twice, **{name: None if name == "backend" else default})
    for mode in (
        "default",
        "reduce-overhead",
        "max-autotune",
        "max-autotune-no-cudagraphs",
        "lite",
    ):
        graftjit.jit(twice, mode=mode)


def test_they_override_the_config() -> None:
    fast = graftjit.jit(twice, config=JitConfig(jit_level="O0", dynamic=True), mode="max-autotune")
    assert fast._unit.config == JitConfig(jit_level="O2", dynamic=True)
    again = graftjit.jit(fast, mode="lite")
    assert again._unit.config.jit_level == "O0" and again.__wrapped__ is twice


def test_what_is_disabled_is_itself() -> None:
    assert graftjit.jit(twice, disable=True) is twice
    assert graftjit.jit(disable=True)(twice) is twice
    assert graftjit.compile(NET, disable=True) is NET


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"mode": "max_autotune"}, "did you mean 'max-autotune'"),
        ({"mode": 3}, "mode=3 (int) is not allowed"),
        ({"mode": []}, "is not allowed"),
        ({"backend": "onnxrt"}, "torch.compile"),
        ({"backend": torch.nn.Identity()}, "is not allowed"),
        ({"options": {"max_autotun": True}}, "did you mean 'max_autotune'"),
        ({"options": {"max_autotune": 1}}, "True or False"),
        ({"options": {"epilogue_fusion": True}}, "leave it out"),
        ({"options": "max_autotune"}, "options is not a dict"),
        ({"disable": 1}, "disable=1"),
        ({"recompile_limit": 0}, "recompile_limit=0"),
        ({"fullgrap": True}, "did you mean 'fullgraph'"),
        ({"jit_level": "O2"}, "config=graftjit.JitConfig(jit_level="),
    ],
    ids=lambda found: str(found)[:40],
)
def test_others_are_refused_with_what_there_is(given: dict[str, Any], text: str) -> None:
    for call in (graftjit.jit, graftjit.compile):
        with pytest.raises(OptionError) as caught:
            call(NET, **given)
        assert text in str(caught.value)
