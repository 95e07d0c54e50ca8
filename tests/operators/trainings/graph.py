"""A graph network: messages along edges, attention by segments, a loss on edges."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

paddle.seed(0)
first, second = nn.Linear(8, 16), nn.Linear(16, 16)
optimizer = paddle.optimizer.SGD(0.05, parameters=[*first.parameters(), *second.parameters()], weight_decay=1e-4)
nodes, source = paddle.randn([12, 8]), paddle.randint(0, 12, [40])
target = paddle.sort(paddle.randint(0, 12, [40]))
for _ in range(3):
    hidden = F.elu(paddle.geometric.send_u_recv(first(nodes), source, target, reduce_op="mean", out_size=12))
    hidden = paddle.geometric.send_u_recv(second(hidden), source, target, reduce_op="sum", out_size=12)
    pooled = paddle.geometric.segment_mean(paddle.gather(hidden, source), target)
    scores = F.cosine_similarity(paddle.gather(hidden, source), paddle.gather(hidden, target))
    loss = F.hinge_embedding_loss(scores, paddle.where(paddle.rand([40]) > 0.5, 1.0, -1.0)) + pooled.abs().mean()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    print("loss", float(loss))
