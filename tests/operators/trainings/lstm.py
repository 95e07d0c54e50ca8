"""A language model of two LSTM layers, with truncated backward, clipping by norm and Adagrad."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

paddle.seed(0)
table, memory, head = nn.Embedding(50, 16, padding_idx=0), nn.LSTM(16, 24, num_layers=2), nn.Linear(24, 50)
parameters = [parameter for part in (table, memory, head) for parameter in part.parameters()]
optimizer = paddle.optimizer.Adagrad(0.05, parameters=parameters, grad_clip=nn.ClipGradByNorm(0.5))
state = None
for _ in range(3):
    ids = paddle.randint(0, 50, [4, 9])
    found, state = memory(table(ids[:, :-1]), state)
    state = tuple(part.detach() for part in state)
    loss = F.cross_entropy(head(found), ids[:, 1:], ignore_index=0)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    print("perplexity", float(loss.exp()))
