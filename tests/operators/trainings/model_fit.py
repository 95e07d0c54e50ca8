"""The high-level interface: paddle.Model with fit."""

import numpy as np
import paddle
import paddle.nn as nn
from paddle.static import InputSpec

paddle.seed(0)


class Rows(paddle.io.Dataset):
    def __getitem__(self, index):
        return np.random.default_rng(index).standard_normal((1, 12, 12)).astype("float32"), np.array([index % 4])

    def __len__(self):
        return 32


net = nn.Sequential(nn.Conv2D(1, 6, 5), nn.ReLU(), nn.AvgPool2D(2), nn.Flatten(), nn.Linear(96, 4))
model = paddle.Model(net, InputSpec([None, 1, 12, 12], "float32", "x"), InputSpec([None, 1], "int64", "y"))
model.prepare(paddle.optimizer.Adam(1e-3, parameters=net.parameters()), nn.CrossEntropyLoss(), paddle.metric.Accuracy())
model.fit(Rows(), epochs=1, batch_size=8, verbose=2, log_freq=1)
