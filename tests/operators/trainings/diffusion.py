"""A diffusion network: sines of the time, group norm, attention over pixels, upsampling, an average of the weights."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F


class Network(nn.Layer):
    def __init__(self, width=16):
        super().__init__()
        self.time, self.enter = nn.Linear(width, width), nn.Conv2D(1, width, 3, padding=1)
        self.down, self.up = nn.Conv2D(width, width, 3, stride=2, padding=1), nn.Conv2D(2 * width, width, 3, padding=1)
        self.norm, self.mixed, self.leave = nn.GroupNorm(4, width), nn.Linear(width, 3 * width), nn.Conv2D(width, 1, 1)

    def forward(self, x, time):
        angles = time.unsqueeze(1) * paddle.exp(-paddle.arange(8, dtype="float32"))
        times = F.silu(self.time(paddle.concat([angles.sin(), angles.cos()], -1)))
        high = F.silu(self.norm(self.enter(x)) + times.unsqueeze(-1).unsqueeze(-1))
        low = self.down(high)
        flat = low.flatten(2).transpose([0, 2, 1])
        query, key, value = self.mixed(flat).chunk(3, axis=-1)
        chances = F.softmax(paddle.matmul(query, key, transpose_y=True) / 4.0)
        low = low + paddle.matmul(chances, value).transpose([0, 2, 1]).reshape(low.shape)
        high = paddle.concat([high, F.interpolate(low, scale_factor=2, mode="nearest")], axis=1)
        return self.leave(F.silu(self.up(high)))


paddle.seed(0)
net, mean = Network(), Network()
kept = paddle.cumprod(1 - paddle.linspace(1e-4, 0.02, 100), dim=0)
optimizer = paddle.optimizer.AdamW(1e-3, parameters=net.parameters(), grad_clip=nn.ClipGradByGlobalNorm(1.0))
for _ in range(3):
    pictures, noise, time = paddle.rand([4, 1, 8, 8]), paddle.randn([4, 1, 8, 8]), paddle.randint(0, 100, [4])
    share = paddle.gather(kept, time).reshape([4, 1, 1, 1])
    loss = F.mse_loss(net(share.sqrt() * pictures + (1 - share).sqrt() * noise, time.astype("float32")), noise)
    loss.backward()
    with paddle.no_grad():
        for old, new in zip(mean.parameters(), net.parameters(), strict=True):
            old.set_value(0.99 * old + 0.01 * new)
    optimizer.step()
    optimizer.clear_grad()
    print("loss", float(loss))
