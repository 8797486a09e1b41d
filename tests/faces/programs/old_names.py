# ms_function: on a function, on a construct, differentiated, and mixed with eager cells.
import numpy as np

import graftjit.nn as nn
import graftjit.ops as ops
from graftjit import Tensor, context, ms_function

context.set_context(mode=context.PYNATIVE_MODE)


@ms_function
def weighted_sum(x, y):
    return ops.add(ops.mul(x, 3), y)


x = Tensor(np.full([2, 3], 2, dtype=np.float32))
y = Tensor(np.ones([2, 3], dtype=np.float32))
print(weighted_sum(x, y))


class Cubed(nn.Cell):
    @ms_function
    def construct(self, x, y):
        return x * x * x - y


print(ops.GradOperation(get_all=True)(Cubed())(x, y))
print(ops.GradOperation()(Cubed())(x, y))


class Half(nn.Cell):
    def construct(self, x):
        return x / 2


class Both(nn.Cell):
    def __init__(self):
        super(Both, self).__init__()
        self.halve = Half()
        self.cubed = Cubed()

    def construct(self, x):
        return self.halve(self.cubed(self.halve(x), x))


print(Both()(x))
