"""A GAN: two networks, two optimizers, transposed convolutions, spectral normalization."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

paddle.seed(0)
make = nn.Sequential(
    nn.Conv2DTranspose(8, 16, 4), nn.BatchNorm2D(16), nn.ReLU(), nn.Conv2DTranspose(16, 1, 4, stride=2, padding=1), nn.Tanh()
)
judge = nn.Sequential(
    nn.Conv2D(1, 8, 4, stride=2, padding=1),
    nn.LeakyReLU(0.2),
    nn.Dropout(0.3),
    nn.Flatten(),
    nn.utils.spectral_norm(nn.Linear(128, 1)),
)
of_make = paddle.optimizer.Adam(2e-4, beta1=0.5, parameters=make.parameters())
of_judge = paddle.optimizer.RMSProp(2e-4, parameters=judge.parameters())
for _ in range(4):
    real, noise = paddle.rand([6, 1, 8, 8]) * 2 - 1, paddle.randn([6, 8, 1, 1])
    made = make(noise)
    yes, no = paddle.ones([6, 1]), paddle.zeros([6, 1])
    loss = F.binary_cross_entropy_with_logits(judge(real), yes) + F.binary_cross_entropy_with_logits(judge(made.detach()), no)
    loss.backward()
    of_judge.step()
    of_judge.clear_grad()
    loss = F.binary_cross_entropy(F.sigmoid(judge(made)), yes)
    loss.backward()
    of_make.step()
    of_make.clear_grad()
    of_judge.clear_grad()
    print("loss", float(loss))
