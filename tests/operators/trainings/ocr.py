"""Text recognition: convolutions, a bidirectional GRU over columns, and CTC."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

paddle.seed(0)
convolutions = nn.Sequential(
    nn.Conv2D(1, 8, 3, padding=1), nn.BatchNorm2D(8), nn.Hardswish(), nn.MaxPool2D(2), nn.Conv2D(8, 16, (8, 3), padding=(0, 1))
)
columns, head = nn.GRU(16, 12, direction="bidirect"), nn.Linear(24, 30)
parameters = [parameter for part in (convolutions, columns, head) for parameter in part.parameters()]
optimizer = paddle.optimizer.Adam(1e-3, parameters=parameters, weight_decay=paddle.regularizer.L2Decay(1e-5))
for _ in range(3):
    pictures = paddle.rand([4, 1, 16, 40])
    texts, lengths = paddle.randint(1, 30, [4, 5]), paddle.to_tensor([5, 4, 3, 5])
    features = convolutions(pictures).squeeze(2).transpose([0, 2, 1])
    logits = head(columns(features)[0]).transpose([1, 0, 2])
    loss = F.ctc_loss(logits, texts.astype("int32"), paddle.full([4], logits.shape[0], "int64"), lengths, blank=0)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    print("loss", float(loss))
