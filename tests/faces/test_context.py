"""The context: what it takes, what it refuses, and that threads see one or the other."""

from __future__ import annotations

import logging
import threading

import pytest
import torch

import graftjit
from graftjit import context
from graftjit.runtime.errors import OptionError
from graftjit.runtime.process.session import SESSION


def test_defaults_and_reading_back():
    assert graftjit.get_context("mode") == graftjit.PYNATIVE_MODE == 1
    assert graftjit.GRAPH_MODE == context.GRAPH_MODE == 0
    graftjit.set_context(mode=context.GRAPH_MODE, device_target="CPU", jit_level="O0")
    assert graftjit.get_context("mode") == 0 and graftjit.get_context("jit_level") == "O0"
    assert graftjit.get_context("jit_config") == graftjit.JitConfig(jit_level="O0")
    graftjit.set_context(jit_config={"jit_syntax_level": "STRICT"})
    assert graftjit.get_context("jit_config").strict
    assert context.set_context is graftjit.set_context


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mod": 1}, "did you mean 'mode'"),
        ({"mode": 2}, "PYNATIVE_MODE"),
        ({"mode": True}, "True"),
        ({"mode": "GRAPHMODE"}, "did you mean 'GRAPH_MODE'"),
        ({"device_target": "gpu "}, "did you mean 'GPU'"),
        ({"device_target": "Ascend"}, "'CPU' or 'GPU'"),
        ({"device_id": -1}, "from 0"),
        ({"jit_level": "O9"}, "O1"),
        ({"jit_config": {"jit_levle": "O1"}}, "did you mean 'jit_level'"),
        ({"jit_config": 3}, "a JitConfig"),
        ({"mode": 0, "wrong": 1}, "wrong"),
    ],
)
def test_bad_settings_are_refused_and_change_nothing(settings, words):
    before = context.current_context()
    with pytest.raises(OptionError, match=words):
        graftjit.set_context(**settings)
    assert context.current_context() is before
    with pytest.raises(ValueError, match="did you mean"):
        graftjit.get_context("modes")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there():
    with pytest.raises(OptionError, match="torch sees 0"):
        graftjit.set_context(device_target="GPU")


def test_settings_without_a_meaning_are_told_once_and_kept(caplog):
    SESSION._warned.clear()
    with caplog.at_level(logging.WARNING, "graftjit"):
        graftjit.set_context(save_graphs=2)
        graftjit.set_context(save_graphs=2)
    assert [r.message.count("save_graphs") for r in caplog.records] == [1]
    assert (
        graftjit.get_context("save_graphs") == 2 and graftjit.get_context("deterministic") is None
    )


def test_threads_lose_no_setting():
    def work(level):
        for _ in range(200):
            graftjit.set_context(jit_level=level)
            graftjit.set_context(mode=context.GRAPH_MODE)

    threads = [threading.Thread(target=work, args=(f"O{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert graftjit.get_context("mode") == 0 and graftjit.get_context("jit_level") in "O0O1O2"


def test_old_marks():
    value = [1, 2]
    assert graftjit.mutable(value) is value and graftjit.mutable(value, dynamic_len=True) is value

    class Marked: ...

    assert graftjit.jit_class(Marked) is Marked
    with pytest.raises(TypeError, match="jit_class marks a class"):
        graftjit.jit_class(lambda: 0)


def test_ms_function_in_its_forms():
    def add(x):
        return x + 1

    x = torch.ones(2)
    config = graftjit.JitConfig(jit_level="O0")
    for made in (
        graftjit.ms_function(add),
        graftjit.ms_function()(add),
        graftjit.ms_function(fn=add, jit_config=config),
        graftjit.ms_function(input_signature=(x,))(add),
    ):
        assert torch.equal(made(x), x + 1) and made.__name__ == "add"
