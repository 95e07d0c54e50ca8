"""A mixture of experts: the two best of four for each token, balanced, with gather and scatter."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

paddle.seed(0)
EXPERTS, WIDTH = 4, 16
gate = nn.Linear(WIDTH, EXPERTS, bias_attr=False)
experts = nn.LayerList([nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH)) for _ in range(EXPERTS)])
table, head = nn.Embedding(40, WIDTH), nn.Linear(WIDTH, 40)
parameters = [parameter for part in (gate, experts, table, head) for parameter in part.parameters()]
optimizer = paddle.optimizer.AdamW(1e-3, parameters=parameters)
for _ in range(3):
    ids = paddle.randint(0, 40, [2, 11])
    tokens = table(ids[:, :-1]).reshape([-1, WIDTH])
    chances = F.softmax(gate(tokens))
    weights, chosen = paddle.topk(chances, 2)
    weights = weights / weights.sum(-1, keepdim=True)
    mixed = paddle.zeros_like(tokens)
    for number, expert in enumerate(experts):
        row, rank = paddle.nonzero(chosen == number, as_tuple=True)
        row, rank = row.flatten(), rank.flatten()
        if not row.shape[0]:
            continue
        share = paddle.gather_nd(weights, paddle.stack([row, rank], -1)).unsqueeze(-1)
        mixed = paddle.scatter_nd_add(mixed, row.unsqueeze(-1), share * expert(paddle.gather(tokens, row)))
    used = F.one_hot(chosen[:, 0], EXPERTS).mean(0)
    balance = EXPERTS * (used * chances.mean(0)).sum()
    loss = F.cross_entropy(head(tokens + mixed), ids[:, 1:].flatten()) + 0.01 * balance
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    print("loss", float(loss))
