"""Tensor guards and overlap through each route to tensors, the slower ones too."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from graftjit.runtime import _native
from graftjit.runtime.guards import tensor_access as tensors
from graftjit.runtime.guards.rows import TensorSpec
from graftjit.runtime.process.session import SESSION

ROUTES = [(), ("requires_grad",), ("keys",), ("handle",)]


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(
        type(tensor),
        tensor.dtype,
        tensor.device,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.requires_grad,
        torch._C._dispatch_keys(tensor).raw_repr(),
    )


@pytest.fixture(params=ROUTES, ids=lambda without: "-".join(("without", *without)))
def without(request: pytest.FixtureRequest):
    tensors.bind(request.param)
    yield request.param
    tensors.bind()


class Subclass(torch.Tensor):
    pass


def kinds() -> dict[str, torch.Tensor]:
    base = torch.zeros(2, 3)
    return {
        "plain": base,
        "transposed": torch.zeros(3, 2).t(),
        "other size": torch.zeros(2, 4),
        "more dims": torch.zeros(2, 3, 1),
        "scalar": torch.zeros(()),
        "double": base.double(),
        "integer": torch.zeros(2, 3, dtype=torch.int64),
        "bool": torch.zeros(2, 3, dtype=torch.bool),
        "bfloat16": base.bfloat16(),
        "requires grad": torch.zeros(2, 3, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.zeros(2, 3)),
        "frozen parameter": torch.nn.Parameter(torch.zeros(2, 3), requires_grad=False),
        "conjugate": torch.zeros(2, 3, dtype=torch.complex64).conj(),
        "complex": torch.zeros(2, 3, dtype=torch.complex64),
        "meta": torch.zeros(2, 3, device="meta"),
        "subclass": torch.zeros(2, 3).as_subclass(Subclass),
        "empty": torch.zeros(0, 3),
        "many dims": torch.zeros(1, 2, 1, 2, 1, 2, 1),
        "float8": torch.zeros(2, 3).to(torch.float8_e5m2),
    }


def test_a_spec_holds_for_its_own_kind_only(without):
    found = kinds()
    for name, tensor in found.items():
        spec = spec_of(tensor)
        for other, value in found.items():
            assert _native.tensor_matches(spec, value) == (name == other), (name, other)
        assert _native.tensor_matches(spec, tensor)


@pytest.mark.parametrize("value", [None, 3, "tensor", [torch.zeros(2)], object(), torch.Tensor])
def test_other_values_do_not_match(without, value):
    assert not _native.tensor_matches(spec_of(torch.zeros(2)), value)


def test_sparse_and_quantized_values_do_not_match(without):
    spec = spec_of(torch.eye(3))
    assert not _native.tensor_matches(spec, torch.eye(3).to_sparse())
    assert not _native.tensor_matches(spec, torch.eye(3).to_mkldnn())


def test_changes_in_place_are_seen(without):
    parameter = torch.nn.Parameter(torch.zeros(4, 4))
    spec = spec_of(parameter)
    assert _native.tensor_matches(spec, parameter)
    parameter.data = torch.zeros(4, 5)
    assert not _native.tensor_matches(spec, parameter)
    parameter.data = torch.zeros(4, 4)
    assert _native.tensor_matches(spec, parameter)
    parameter.requires_grad_(False)
    assert not _native.tensor_matches(spec, parameter)
    tensor = torch.zeros(4)
    spec = spec_of(tensor)
    tensor.resize_(2)
    assert not _native.tensor_matches(spec, tensor)


def test_inference_tensors_are_told_from_others(without):
    with torch.inference_mode():
        inside = torch.zeros(2, 3)
    outside = torch.zeros(2, 3)
    assert not _native.tensor_matches(spec_of(outside), inside)
    assert not _native.tensor_matches(spec_of(inside), outside)


def test_overlap(without):
    base = torch.zeros(4, 4)
    assert _native.tensors_overlap(base, base)
    assert _native.tensors_overlap(base, base.t())
    assert _native.tensors_overlap(base[:3], base[2:])
    assert not _native.tensors_overlap(base[:2], base[2:])
    assert not _native.tensors_overlap(base, torch.zeros(4, 4))
    assert not _native.tensors_overlap(base[:0], base)
    assert _native.tensors_overlap(base[0], base[:1].expand(3, 4))
    assert _native.tensors_overlap(base[:, 0], base[:, 1])  # interleaved: not ruled out
    assert not _native.tensors_overlap(base, "no tensor")
    assert not _native.tensors_overlap(base.to("meta"), base.to("meta"))
    assert _native.tensors_overlap(torch.eye(2).to_sparse(), base)  # unknown: not ruled out


def test_routes_are_named():
    routes = _native.tensor_routes()
    assert set(routes) == {
        "handle",
        "metadata",
        "dispatch keys",
        "requires_grad",
        "wrap",
        "allocate",
        "errors",
        "executor",
        "threads",
        "history",
        "interpreter state",
    }
    try:
        assert tensors.bind(["history"])["history"] == "python"
        assert tensors.bind(["wrap"])["executor"] == "python"
        assert tensors.bind(["handle"])["metadata"] == "python attributes"
        assert tensors.bind(["state"])["interpreter state"] == "runtime.state.snapshot"
    finally:
        assert tensors.bind() == routes


def test_left_out_by_an_option():
    try:
        with SESSION.override(without=frozenset(("program", "errors"))):
            routes = tensors.bind()
        assert (routes["executor"], routes["errors"]) == ("python", "repeated in Python")
    finally:
        tensors.bind()


def test_binding_warns_of_nothing():
    """torch warns of sparse, quantized and half complex tensors; the samples may not stir that up."""
    program = (
        "import graftjit.runtime.guards.tensor_access as tensors; print(tensors.bind()['executor'])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error::UserWarning", "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.strip()


def test_on_this_torch_every_route_is_native():
    """torch 2.11 to 2.13 on Linux have all of them; a new version that lacks one shall be noticed."""
    if torch.__version__ < "2.14":
        assert _native.tensor_routes()["executor"] == "native"
        assert _native.tensor_routes()["interpreter state"] == "packed image"
        assert _native.tensor_routes()["history"] == "words"
        assert _native.tensor_routes()["requires_grad"] == "c10::TensorImpl::requires_grad"


def test_plain_tensors_are_told_by_their_key_sets(without):
    plain = torch.zeros(2), torch.nn.Parameter(torch.zeros(2)), None, torch.ones(3, 4).t()
    assert _native.all_plain(plain) == (without in ((), ("requires_grad",)))
    for other in (torch.eye(2).to_sparse(), Subclass(), torch.zeros(2, device="meta"), 1):
        assert not _native.all_plain((torch.zeros(2), other))
    assert _native.all_plain((None, None)) and _native.all_plain(())
    assert not _native.all_plain([torch.zeros(2)])


def _places(states):
    with torch.enable_grad():
        return _native.trace_bind(tensors._small(), tensors._kinds(), states)


def test_fields_of_autograd_data_follow_their_tensors():
    """A byte of unused memory may have the values of a field in one state of the samples, which
    made one process in some hundred blind for `requires_grad_()`. A field changes with them."""
    try:
        found = _places(tensors._autograd_states())
        assert found is not None and found == _places(tensors._autograd_states())

        first = next(tensors._autograd_states())
        assert _places([first]) is not None
        plain, leaves, switched, results, detached = first
        for wrong in (
            (leaves[:1], leaves, switched, results, detached),
            (plain, switched, leaves, results, detached),
            (plain, leaves, switched, detached, results),
        ):
            assert _places([first, wrong]) is None

        def raising():
            yield first
            raise ValueError("no second state")

        with pytest.raises(ValueError, match="no second state"):
            _places(raising())
        assert _places(()) is None
    finally:
        tensors.bind()
