"""The environment table and JitConfig: defaults, good values, and errors that say what to do."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from graftjit.runtime.errors import OptionError
from graftjit.runtime.process.options import (
    VARIABLES,
    JitConfig,
    Options,
    read_environment,
    unknown_variables,
)

ROOT = Path(__file__).parents[3]


def test_nothing_set_gives_the_defaults():
    assert read_environment({}) == Options()
    assert read_environment({variable.name: "" for variable in VARIABLES}) == Options()


@pytest.mark.parametrize(
    ("name", "text", "option", "value"),
    [
        ("GRAFTJIT_DISABLE", "1", "disable", True),
        ("GRAFTJIT_DISABLE", "off", "disable", False),
        ("GRAFTJIT_CHECK", "True", "check", True),
        ("GRAFTJIT_DEBUG", "5", "debug", 5),
        ("GRAFTJIT_THREADS", "3", "threads", 3),
        ("GRAFTJIT_CACHE_DIR", "/tmp/some where", "cache_dir", Path("/tmp/some where")),
        ("GRAFTJIT_TRACE", "traces", "trace", Path("traces").absolute()),
        ("GRAFTJIT_TUNE", "0", "tune", False),
        ("GRAFTJIT_ROOFLINE", "0", "roofline", False),
        ("GRAFTJIT_TRIALS", "0", "trials", False),
        ("GRAFTJIT_WITHOUT", "wrap, keys", "without", frozenset(("wrap", "keys"))),
        ("CXX", " ccache g++ ", "cxx", "ccache g++"),
    ],
)
def test_good_values(name, text, option, value):
    assert getattr(read_environment({name: text}), option) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("GRAFTJIT_DISABLE", "maybe"),
        ("GRAFTJIT_CHECK", "2"),
        ("GRAFTJIT_DEBUG", "6"),
        ("GRAFTJIT_DEBUG", "-1"),
        ("GRAFTJIT_DEBUG", "high"),
        ("GRAFTJIT_THREADS", "0"),
        ("GRAFTJIT_WITHOUT", "wraps"),
        ("GRAFTJIT_CACHE_DIR", __file__),
    ],
)
def test_bad_values_name_the_variable_and_what_is_allowed(name, text):
    with pytest.raises(OptionError) as caught:
        read_environment({name: text})
    seen = str(caught.value)
    assert name in seen and text in seen and "expected:" in seen and "what to do:" in seen
    assert isinstance(caught.value, ValueError)


def test_unknown_variables_are_told_with_the_nearest_name():
    ((name, hint),) = unknown_variables({"GRAFTJIT_DEBUGG": "1", "HOME": "/"})
    assert name == "GRAFTJIT_DEBUGG" and "GRAFTJIT_DEBUG" in hint


def test_one_table_one_field_each():
    assert [v.option for v in VARIABLES] == [f.name for f in dataclasses.fields(Options)]


def test_nothing_else_reads_our_variables():
    reads = re.compile(r"(environ|getenv)[^\n]*GRAFTJIT_")
    for package in ("ir", "runtime", "codegen", "capture", "graftjit"):
        for path in (ROOT / package).rglob("*.py"):
            assert not reads.search(path.read_text(encoding="utf-8")), path


def test_config_defaults_and_replace():
    config = JitConfig()
    assert (config.jit_level, config.exec_mode, config.jit_syntax_level) == ("O1", "auto", "LAX")
    assert config.dynamic is None and not config.strict
    other = config.replace(jit_syntax_level="STRICT", dynamic=True)
    assert other.strict and other.dynamic and config == JitConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.jit_level = "O2"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"jit_level": "o2"}, "O2"),
        ({"jit_level": 2}, "O0"),
        ({"jit_syntax_level": "STRCT"}, "STRICT"),
        ({"exec_mode": "nosink"}, "no_sink"),
        ({"dynamic": 1}, "None, True or False"),
        ({"background": None}, "True or False"),
        ({"tune": 1}, "True or False"),
        ({"recompile_limit": 0}, "at least 1"),
        ({"recompile_limit": True}, "at least 1"),
        ({"jit_levle": "O1"}, "did you mean 'jit_level'"),
    ],
)
def test_config_errors(options, hint):
    with pytest.raises(OptionError) as caught:
        JitConfig(**options)
    assert hint in str(caught.value)
