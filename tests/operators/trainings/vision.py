"""A residual network with batch norm, augmentations in the workers of a loader, momentum and a schedule."""

import argparse

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F
from paddle.vision import transforms


class Pictures(paddle.io.Dataset):
    change = transforms.Compose([lambda cut: cut.transpose(2, 0, 1).astype("float32"), transforms.Normalize(127.5, 127.5)])

    def __getitem__(self, index):
        picture = np.random.default_rng(index).integers(0, 256, (32, 32, 3)).astype("uint8")
        top, left = np.random.randint(0, 4, 2)
        cut = picture[top : top + 28, left : left + 28]
        cut = cut[:, ::-1] if np.random.random() < 0.5 else cut
        return self.change(cut), index % 10

    def __len__(self):
        return 64


class Block(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = (nn.Conv2D(width, width, 3, padding=1, bias_attr=False) for _ in range(2))
        self.norms = nn.LayerList([nn.BatchNorm2D(width), nn.BatchNorm2D(width)])

    def forward(self, x):
        inner = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(inner)))


parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
options = parser.parse_args()
paddle.seed(0)
net = nn.Sequential(
    nn.Conv2D(3, 16, 3), nn.BatchNorm2D(16), nn.ReLU6(), nn.MaxPool2D(2), Block(16), nn.AdaptiveAvgPool2D(1), nn.Flatten()
)
head = nn.Linear(16, 10)
rate = paddle.optimizer.lr.CosineAnnealingDecay(options.lr, 10)
parameters = [*net.parameters(), *head.parameters()]
optimizer = paddle.optimizer.Momentum(rate, parameters=parameters, weight_decay=1e-4, use_nesterov=True)
for pictures, labels in paddle.io.DataLoader(Pictures(), batch_size=8, shuffle=True, num_workers=1):
    loss = F.cross_entropy(head(net(pictures)), labels, label_smoothing=0.1)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    rate.step()
    print("loss", float(loss))
