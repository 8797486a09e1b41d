# Gradients of inputs and of weights asked for in turn, a step of training between them.
import numpy as np
import torch

import graftjit as ms
from graftjit import Tensor, nn, ops

ms.set_context(mode=MODE)  # noqa: F821


class Regression(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, 1, weight_init="ones", bias_init=0.5)

    def construct(self, x):
        return self.dense(x)


model = Regression()
x = Tensor(np.arange(6).reshape(2, 3).astype(np.float32))
y = Tensor(np.ones([2, 1], dtype=np.float32))
of_inputs = ops.GradOperation(get_all=True)(model)
of_weights = ops.GradOperation(get_by_list=True)(model, model.trainable_params())
for _ in range(2):
    print(of_inputs(x))
    print(of_weights(x))
    print(of_weights(x))
    print(of_inputs(x))
both = ops.GradOperation(get_all=True, get_by_list=True, sens_param=True)(model)
print(both(x, y * 2))


def loss_of(x, y):
    return nn.MSELoss()(model(x), y)


step = ops.value_and_grad(loss_of, grad_position=None, weights=model.trainable_params())
for _ in range(4):
    loss, gradients = step(x, y)
    print(round(loss.item(), 4))
    with torch.no_grad():
        for parameter, gradient in zip(model.trainable_params(), gradients, strict=True):
            parameter -= 0.02 * gradient
print(all(parameter.grad is None for parameter in model.trainable_params()))
