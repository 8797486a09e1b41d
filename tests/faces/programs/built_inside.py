# jit as a decorator and as a transform on a function that builds its network inside.
import numpy as np

import graftjit as ms
from graftjit import Tensor, nn


class Small(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Dense(9, width)
        self.second = nn.Dense(width, 2, activation="tanh")

    def construct(self, x):
        return self.second(self.first(x))


x = Tensor(np.arange(18).reshape(2, 9).astype(np.float32) / 9)


@ms.jit
def decorated(x):
    model = Small(7)
    return model(x)


def plain(x):
    return Small(4)(x)


transformed = ms.jit(plain)
print(decorated(x))
print(transformed(x))
print(decorated(x))
print(plain.__name__, transformed.__name__, transformed.__wrapped__ is plain)
