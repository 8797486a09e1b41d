"""Cells and layers against torch's own, with the defaults of the static-graph documents."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import graftjit
from graftjit import nn
from graftjit.runtime.errors import OptionError


class Pair(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(3, 4)
        self.second = nn.Dense(4, 2, has_bias=False)

    def construct(self, x, scale=1.0):
        return self.second(self.first(x)) * scale


def test_a_cell_is_a_module():
    pair = Pair()
    assert isinstance(pair, torch.nn.Module) and isinstance(pair.first, torch.nn.Linear)
    assert list(pair.state_dict()) == ["first.weight", "first.bias", "second.weight"]
    x = torch.randn(5, 3)
    assert torch.equal(pair(x, scale=2.0), F.linear(pair.first(x), pair.second.weight) * 2)
    again = pickle.loads(pickle.dumps(pair))
    assert torch.equal(again(x), pair(x))
    assert torch.equal(copy.deepcopy(pair)(x), pair(x))


AROUND = ("WithLossCell", "ForwardValueAndGrad", "WithGradCell", "TrainOneStepCell")


def test_cells_start_in_evaluation_mode_and_set_train_turns_training_on():
    pair = Pair()
    assert not any(m.training for m in pair.modules())
    assert pair.set_train() is pair and all(m.training for m in pair.modules())
    assert not any(m.training for m in pair.set_train(False).modules())


@pytest.mark.parametrize("name", sorted({*nn.__all__} - {"get_activation", *AROUND}))
def test_every_layer_starts_in_evaluation_mode(name):
    arguments = {
        "Dense": (2, 2), "Conv2d": (2, 2, 1), "Embedding": (2, 2), "BatchNorm1d": (2,),
        "BatchNorm2d": (2,), "LayerNorm": (2,),
    }.get(name, ())  # fmt: skip
    assert getattr(nn, name)(*arguments).training is False


def test_children_and_parameters_by_their_other_names():
    pair = Pair()
    pair.insert_child_to_cell("third", nn.ReLU())
    pair.insert_param_to_cell("extra", torch.nn.Parameter(torch.zeros(2), requires_grad=False))
    assert list(pair.name_cells()) == ["first", "second", "third"]
    assert [type(c) for c in pair.cells()] == [nn.Dense, nn.Dense, nn.ReLU]
    assert [name for name, _ in pair.parameters_and_names()][0] == "extra"
    assert [name for name, _ in pair.parameters_and_names(expand=False)] == ["extra"]
    assert len(pair.trainable_params()) == 3 and len(pair.untrainable_params()) == 1
    assert "first.weight" in pair.parameters_dict()
    assert [name for name, _ in pair.cells_and_names()] == ["", "first", "second", "third"]
    for taken in ("first", "construct"):
        with pytest.raises(KeyError, match=taken):
            pair.insert_child_to_cell(taken, nn.ReLU())


def test_a_cell_without_construct_says_so():
    class Empty(nn.Cell):
        pass

    with pytest.raises(NotImplementedError, match="Empty has no construct"):
        Empty()(1)


def test_sequences():
    a, b = nn.Dense(2, 3), nn.ReLU()
    for cells in (nn.SequentialCell(a, b), nn.SequentialCell([a, b])):
        x = torch.randn(4, 2)
        assert torch.equal(cells(x), b(a(x))) and len(cells) == 2
        assert isinstance(cells[:1], nn.SequentialCell) and cells[0] is a
    assert list(nn.SequentialCell({"in": a, "out": b}).state_dict()) == ["in.weight", "in.bias"]
    listed = nn.CellList([a])
    listed.append(b)
    listed.insert(0, b)
    assert list(listed) == [b, a, b] and list(nn.CellList(a, b)) == [a, b]
    assert "1.weight" in listed.state_dict()


@pytest.mark.parametrize("size", [(7, 9), (8, 8), (5, 12)])
@pytest.mark.parametrize("kernel", [1, 2, 3, (2, 5)])
@pytest.mark.parametrize("stride", [1, 2, (3, 1)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same_padding(size, kernel, stride, dilation):
    conv = nn.Conv2d(2, 3, kernel, stride=stride, dilation=dilation)
    rows, columns = (stride, stride) if isinstance(stride, int) else stride
    x = torch.randn(2, 2, *size)
    found = conv(x)
    assert found.shape[2:] == (math.ceil(size[0] / rows), math.ceil(size[1] / columns))
    if stride == 1:
        expected = F.conv2d(x, conv.weight, padding="same", dilation=dilation)
        torch.testing.assert_close(found, expected)
    assert conv(x[0]).shape == found.shape[1:]


def test_padding_by_number_and_side():
    x = torch.randn(1, 2, 6, 6)
    conv = nn.Conv2d(2, 3, 3, pad_mode="pad", padding=(1, 0, 2, 3))
    assert torch.equal(conv(x), F.conv2d(F.pad(x, (2, 3, 1, 0)), conv.weight))
    conv = nn.Conv2d(2, 3, 3, pad_mode="pad", padding=1, group=1, has_bias=True)
    assert torch.equal(conv(x), F.conv2d(x, conv.weight, conv.bias, padding=1))
    conv = nn.Conv2d(2, 4, 3, pad_mode="valid", group=2)
    assert torch.equal(conv(x), F.conv2d(x, conv.weight, groups=2))
    with pytest.raises(OptionError, match="did you mean 'same'"):
        nn.Conv2d(2, 3, 3, pad_mode="sane")
    with pytest.raises(OptionError, match="needs pad_mode='pad'"):
        nn.Conv2d(2, 3, 3, padding=1)


def test_pooling():
    x = torch.randn(2, 3, 7, 8)
    assert torch.equal(nn.MaxPool2d(2, 2)(x), F.max_pool2d(x, 2, 2))
    assert nn.MaxPool2d(3)(x).shape == (2, 3, 5, 6)  # the stride is 1 here, kernel_size in torch
    same = nn.MaxPool2d(2, 2, pad_mode="same")(x - 100)
    assert same.shape == (2, 3, 4, 4) and (same < -50).all()
    assert torch.equal(nn.AvgPool2d(2, 2)(x), F.avg_pool2d(x, 2, 2))
    ones = nn.AvgPool2d(3, 2, pad_mode="same")(torch.ones(1, 1, 7, 8))
    torch.testing.assert_close(ones, torch.ones(1, 1, 4, 4))


def test_batch_norm_keeps_nine_tenths_and_follows_training():
    x = torch.randn(6, 4) * 3 + 1
    ours, theirs = nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)
    torch.testing.assert_close(ours(x), theirs.eval()(x))
    ours.set_train(), theirs.train()
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert int(ours.num_batches_tracked) == 1
    fixed = nn.BatchNorm1d(4, use_batch_statistics=False).set_train()
    torch.testing.assert_close(fixed(x), x / math.sqrt(1 + 1e-5))


def test_layer_norm_and_its_axes():
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(nn.LayerNorm((4,))(x), F.layer_norm(x, (4,), eps=1e-7))
    torch.testing.assert_close(nn.LayerNorm((3, 4), 1, 1)(x), F.layer_norm(x, (3, 4), eps=1e-7))
    with pytest.raises(OptionError, match="do not fit"):
        nn.LayerNorm((4,), begin_norm_axis=0)(x)


def test_dropout():
    x = torch.ones(1000)
    dropout = nn.Dropout(p=0.25)
    assert torch.equal(dropout(x), x)
    torch.manual_seed(3)
    dropped = dropout.set_train()(x)
    torch.manual_seed(3)
    assert torch.equal(dropped, F.dropout(x, 0.25))
    assert nn.Dropout(keep_prob=0.9).p == pytest.approx(0.1) and nn.Dropout().p == 0.5
    with pytest.raises(OptionError, match="p or keep_prob"):
        nn.Dropout(0.9)


def test_activations_and_embedding():
    x = torch.randn(3, 5)
    pairs = [
        (nn.ReLU(), F.relu(x)),
        (nn.GELU(), F.gelu(x, approximate="tanh")),
        (nn.GELU(approximate=False), F.gelu(x)),
        (nn.Sigmoid(), torch.sigmoid(x)),
        (nn.Tanh(), torch.tanh(x)),
        (nn.Softmax(), torch.softmax(x, -1)),
        (nn.Softmax(axis=0), torch.softmax(x, 0)),
        (nn.LogSoftmax(), torch.log_softmax(x, -1)),
        (nn.LeakyReLU(), F.leaky_relu(x, 0.2)),
        (nn.Flatten(), x),
        (nn.get_activation("relu"), F.relu(x)),
    ]
    for layer, expected in pairs:
        assert torch.equal(layer(x), expected), layer
    dense = nn.Dense(5, 2, activation="relu", weight_init="zeros", bias_init=-1.0)
    assert torch.equal(dense(x), torch.zeros(3, 2))
    table = nn.Embedding(10, 4, padding_idx=0)
    assert torch.equal(table(torch.tensor([0, 3])), torch.stack([torch.zeros(4), table.weight[3]]))
    for wrong, hint in (("rellu", "relu"), ("tan", "tanh")):
        with pytest.raises(OptionError, match=hint):
            nn.Dense(2, 2, activation=wrong)
    with pytest.raises(OptionError, match="zeros"):
        nn.Dense(2, 2, weight_init="zeroes")


def test_losses():
    logits, classes = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    assert torch.equal(
        nn.CrossEntropyLoss()(logits, classes.int()), F.cross_entropy(logits, classes)
    )
    each = F.cross_entropy(logits, classes, reduction="none")
    assert torch.equal(nn.SoftmaxCrossEntropyWithLogits(sparse=True)(logits, classes.int()), each)
    hot = F.one_hot(classes, 3).float()
    torch.testing.assert_close(nn.SoftmaxCrossEntropyWithLogits()(logits, hot), each)
    assert torch.equal(nn.MSELoss()(logits, hot), F.mse_loss(logits, hot))
    assert torch.equal(
        nn.L1Loss(reduction="sum")(logits, hot), F.l1_loss(logits, hot, reduction="sum")
    )


def test_other_names_are_those_of_torch():
    assert nn.Linear is torch.nn.Linear and nn.Parameter is torch.nn.Parameter
    with pytest.raises(AttributeError, match="did you mean 'Dense'"):
        nn.Dens  # noqa: B018
    assert {"Cell", "Linear"} <= set(dir(nn))


def test_tensor_and_parameter():
    data = np.ones((2, 2), dtype=np.float32)
    made = graftjit.Tensor(data)
    data[0, 0] = 7
    assert type(made) is torch.Tensor and made[0, 0] == 1 and made.dtype == torch.float32
    assert graftjit.Tensor([1, 2], torch.float16).dtype == torch.float16
    assert graftjit.Tensor(made) is not made and torch.equal(graftjit.Tensor(made), made)
    assert isinstance(made, graftjit.Tensor) and not isinstance(data, graftjit.Tensor)
    assert issubclass(torch.nn.Parameter, graftjit.Tensor)
    weight = graftjit.Parameter(made, name="w")
    assert isinstance(weight, torch.nn.Parameter) and isinstance(weight, graftjit.Parameter)
    assert not graftjit.Parameter(graftjit.Tensor([1, 2])).requires_grad
    assert not isinstance(made, graftjit.Parameter)
