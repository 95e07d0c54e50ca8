"""A vision transformer with dropout, started by paddle.distributed: spawn, or a launcher, wrapped for data parallelism."""

import paddle
import paddle.distributed as dist
import paddle.nn as nn
import paddle.nn.functional as F


def train():
    dist.init_parallel_env()
    paddle.seed(0)
    patches, head = nn.Conv2D(3, 32, 4, stride=4), nn.Linear(32, 5)
    layers = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, activation="gelu", normalize_before=True), 2
    )
    layers = paddle.DataParallel(layers) if dist.get_world_size() > 1 else layers
    parameters = [parameter for part in (patches, layers, head) for parameter in part.parameters()]
    optimizer = paddle.optimizer.Lamb(1e-3, parameters=parameters)
    for _ in range(3):
        tokens = patches(paddle.rand([4, 3, 16, 16])).flatten(2).transpose([0, 2, 1])
        loss = F.cross_entropy(head(layers(tokens).mean(1)), paddle.randint(0, 5, [4]))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        print("loss", float(loss))


if __name__ == "__main__":
    dist.spawn(train, nprocs=2)
