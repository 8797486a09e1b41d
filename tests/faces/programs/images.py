# Convolutions, pooling, batch statistics, dropout; training on and off.
import numpy as np

import graftjit as ms
from graftjit import Tensor, nn

ms.set_context(mode=MODE)  # noqa: F821


class Images(nn.Cell):
    def __init__(self):
        super().__init__()
        self.blocks = nn.CellList(
            nn.SequentialCell(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2, 2)),
            nn.SequentialCell(
                nn.Conv2d(4, 6, 3, stride=2, pad_mode="pad", padding=1, has_bias=True),
                nn.LeakyReLU(),
                nn.AvgPool2d(2, 2, pad_mode="same"),
            ),
        )
        self.dropout = nn.Dropout(p=0.25)
        self.head = nn.Dense(6, 3)

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        x = self.dropout(x.mean((-1, -2)))
        return nn.Softmax()(self.head(x))


model = Images()
images = Tensor(np.linspace(-1, 1, 2 * 9 * 7).reshape(2, 1, 9, 7).astype(np.float32))
print(model.training, model(images))
model.set_train()
print(model.training, model(images))
print(model(images))
model.set_train(False)
print(model(images))
print(model.blocks[0][1].running_mean, model.blocks[0][1].num_batches_tracked)
