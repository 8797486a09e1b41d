"""`benchmarks.zoo`: its command on two models of ours, and what it tells of systems that are wrong or round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


def test_zoo_of_two_models_and_going_on(tmp_path):
    out, table = tmp_path / "own.jsonl", tmp_path / "own.md"
    words = ["--out", str(out), "--table", str(table), "--peer"]

    def zoo(*names: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.zoo", "own", *words, "--seconds", "60", *names], cwd=ROOT, capture_output=True, text=True,
            timeout=120, check=True,
        )  # fmt: skip
        return done.stdout

    assert "words: inference: right, one graph" in zoo("words")
    seen = zoo()
    assert "words:" not in seen and "branching: inference: right, 1 break," in seen
    words_, branching = [json.loads(text) for text in out.read_text().splitlines()[1:]]
    assert (words_["name"], branching["name"]) == ("words", "branching")
    for part in ("inference", "training", "generate"):
        found, peer = words_[part], words_["peer"][part]
        assert found["right"] == peer["right"] == "equal" and found["breaks"] == []
        assert found["graphs"][0] == 1 <= peer["graphs"][0]
        assert found["ratios"] and found["eager_us"] > 0
    (row,) = branching["inference"]["breaks"]
    assert row["code"] == "GB105" and row["where"].startswith("own.py:")
    assert "generate" not in branching and branching["peer"]["training"]["breaks"]
    text = table.read_text()
    assert "2 models, 2 built." in text
    assert "| inference | 2 | 2 (100%) | 1 (50%) |" in text and "| GB105 | 1 | 1 | 0 |" in text


def test_zoo_tells_what_is_wrong(bench):
    table, values = bench("zoo.table"), bench("zoo.values")
    part = {"right": "equal", "raises": False, "graphs": [1, 2], "breaks": [], "faults": []}
    wrong = part | {"right": ["(2, 8): value 0: (2,) is off by 1"]}
    slow = part | {"ratios": [1.2, 1.3, 1.06], "eager_us": 10.0}
    quick = part | {"ratios": [1.2, 0.9], "eager_us": 10.0}
    records = [
        {"name": "a", "arguments": ["x"], "inference": wrong, "training": slow},
        {"name": "b", "arguments": ["x"], "inference": quick, "training": part | {"raises": True}},
        {"name": "c", "problem": "ValueError: too small"},
    ]
    assert [table.differs(record) for record in records] == [True, False, False]
    text = table.markdown(records)
    assert "3 models, 2 built." in text and "- c: ValueError: too small" in text
    assert "| inference | 2 | 1 (50%) | 2 (100%) | 0 |" in text
    assert "| training | 1 | 1 (100%) | 1 (100%) | 1 |" in text
    assert "- a, training: 1.06 of eager's 10.0 us" in text and "- b" not in text
    x = torch.ones(2, 3)
    assert values.difference({"y": x}, {"y": x.clone()}) == ""
    assert "off by 1" in values.difference({"y": x}, {"y": x * 2})
    assert "float64" in values.difference([x.double()], [x])
    assert values.difference([x.t().contiguous().t()], [x]) and values.difference((x,), [x])


class _Off:
    """A system whose results are off by `much` in these dtypes."""

    def __init__(self, much, *dtypes):
        self.much, self.dtypes = much, dtypes

    def wrap(self, model):
        def off(_module, _inputs, result):
            return result + self.much * (result.dtype in self.dtypes)

        model.register_forward_hook(off)
        return model

    def graphs(self, wrapped):
        return 1

    def told(self, wrapped):
        return {"breaks": []}


@pytest.mark.parametrize(
    ("system", "right"),
    [
        (_Off(0), True),
        (_Off(1e-3, torch.float32), True),
        (_Off(1e-3, torch.float32, torch.float64), False),
    ],
)
def test_zoo_looks_in_float64_at_what_differs(bench, system, right):
    looks, told = bench("zoo.looks"), {}
    looks.look(bench("zoo.own").prepared("words"), system, lambda **found: told.update(found), times=False)  # fmt: skip
    assert torch.get_default_dtype() == torch.float32
    assert (told["inference"]["right"] == "equal") == right
    assert ("rounding" in told["inference"]) == (right and system.much > 0)
    assert told["generate"]["right"] == "equal"


def test_zoo_of_a_model_that_has_no_float64(bench):
    """What roundings of its weights change in plain Python too is no fault."""
    case, looks = bench("zoo.case"), bench("zoo.looks")

    class Single(torch.nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.layer, self.factor = torch.nn.Linear(8, 8), factor

        def forward(self, x):
            x = self.layer(x)
            if x.dtype != torch.float32:
                raise TypeError("float32 alone")
            return torch.sin(x * self.factor)

    for factor, right in ((1.0, False), (1e5, True)):
        one = case.Case(Single(factor), lambda size, masked: ((torch.rand(size),), {}), ((2, 8), (3, 8)))  # fmt: skip
        told = {}
        looks.look(one, _Off(1e-2, torch.float32), lambda told=told, **found: told.update(found), times=False)  # fmt: skip
        assert (told["inference"]["right"] == "equal") == right


def test_zoo_shrinks_configurations_by_the_names_of_their_numbers(bench):
    small = bench("zoo.small")
    numbers = {"hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32000, "depths": [3, 4], "num_heads": [8, 8],
               "attention_dropout": 0.1, "bos_token_id": 31999, "hidden_sizes": [64, 128]}  # fmt: skip
    first, counts = (
        {name: small.small(name, value, variant) for name, value in numbers.items()}
        for variant in (small.VARIANTS[0], small.ONLY_COUNTS)
    )
    both = {"num_hidden_layers": 2, "vocab_size": 99, "depths": [1, 1], "attention_dropout": 0.0}
    assert {name: first[name] for name in both} == {name: counts[name] for name in both} == both
    assert first["bos_token_id"] == counts["bos_token_id"] < 99
    assert [first[name] for name in ("hidden_size", "num_heads", "hidden_sizes")] == [32, [2, 2], [16, 32]]  # fmt: skip
    assert all(counts[name] == numbers[name] for name in ("hidden_size", "num_heads", "hidden_sizes"))  # fmt: skip


def test_zoo_outlives_a_model_that_ends_its_process(bench):
    in_a_process = bench("zoo.processes").in_a_process

    def work(tell):
        tell(arguments=["x"])
        os.abort()

    found = in_a_process(work, 20)
    assert found["arguments"] == ["x"] and found["problem"] == "ended with -6"
