"""A recommender: wide tables with sparse gradients, crosses of features, a log loss, Adam that is lazy."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

paddle.seed(0)
tables = nn.LayerList([nn.Embedding(size, 8, sparse=size == 50) for size in (1000, 200, 50)])
deep = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = paddle.optimizer.Adam(1e-2, parameters=[*tables.parameters(), *deep.parameters()], lazy_mode=True)
for _ in range(3):
    columns = [paddle.randint(0, size, [16]) for size in (1000, 200, 50)]
    clicked = paddle.bernoulli(paddle.full([16, 1], 0.3))
    parts = paddle.stack([table(column) for table, column in zip(tables, columns, strict=True)], 1)
    crossed = 0.5 * (parts.sum(1).square() - parts.square().sum(1)).sum(-1, keepdim=True)
    chance = F.sigmoid(crossed + deep(parts.flatten(1)))
    loss = F.log_loss(chance, clicked).mean()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    print("loss", float(loss))
