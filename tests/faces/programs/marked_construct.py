# @jit on construct, in either mode, with batches of several sizes and a keyword argument.
import numpy as np

import graftjit as ms
from graftjit import Tensor, nn


class Scaled(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.dense = nn.Dense(8, 3)

    @ms.jit
    def construct(self, x, scale=1.0):
        """Keeps its docstring."""
        return self.dense(self.norm(x)) * scale


ms.set_context(mode=MODE)  # noqa: F821
model = Scaled()
data = Tensor(np.arange(40).reshape(5, 8).astype(np.float32))
for rows in (5, 3, 1, 5):
    print(model(data[:rows]))
print(model(data, scale=2.0))
print(Scaled.construct.__doc__, Scaled.construct.__name__)
