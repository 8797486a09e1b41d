# A network under set_context(mode=...). MODE is given by the test.
import numpy as np

import graftjit as ms
from graftjit import Tensor, nn

ms.set_context(mode=MODE)  # noqa: F821


class Classifier(nn.Cell):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.layers = nn.SequentialCell(
            nn.Dense(12 * 12, 40), nn.GELU(), nn.Dense(40, 40), nn.ReLU(), nn.Dense(40, 5)
        )

    def construct(self, x):
        return self.layers(self.flatten(x))


model = Classifier()
images = Tensor(np.ones([6, 1, 12, 12]).astype(np.float32))
for _ in range(3):
    print(model(images))
print(model(images[:2]).shape, sorted(model.state_dict()))
print(ms.get_context("mode") == MODE)  # noqa: F821
