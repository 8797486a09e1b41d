# What changes between two calls is seen by the second one.
import numpy as np

import graftjit.nn as nn
from graftjit import Tensor, context, ms_function

context.set_context(mode=MODE)  # noqa: F821
x = Tensor(np.ones([2, 2], dtype=np.float32))
offset = 5
calls = 0
seen = []


@ms_function
def shadowed(x):
    offset = 1
    return x + offset


@ms_function
def counted(x):
    global calls
    calls += 1
    seen.append(calls)
    return x * calls


class Module(nn.Cell):
    def __init__(self):
        super(Module, self).__init__()
        self.value = 5
        self.negate = False
        self.weights = [1.0, 2.0]
        self.table = {"k": 3}

    @ms_function
    def construct(self, x):
        if self.negate:
            x = -x
        return x * self.weights[1] + self.value + self.table["k"]


print(shadowed(x), offset)
for _ in range(3):
    print(counted(x))
print(calls, seen)
module = Module()
print(module(x))
module.value = 1
print(module(x))
module.negate = True
print(module(x))
module.weights[1] = 0.5
print(module(x))
module.table["k"] = -3
print(module(x))
module.register_forward_hook(lambda cell, args, result: result * 10)
print(module(x))
Module.construct = lambda self, x: x
print(module(x))
