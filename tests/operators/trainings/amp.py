"""Mixed precision: auto_cast O1 with bfloat16, a scaler, accumulation, soft labels."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

paddle.seed(1)
net = nn.Sequential(
    nn.Conv2D(3, 8, 3, padding=1),
    nn.BatchNorm2D(8),
    nn.ELU(),
    nn.MaxPool2D(2),
    nn.GroupNorm(4, 8),
    nn.Hardswish(),
    nn.AdaptiveAvgPool2D(1),
    nn.Flatten(),
    nn.Dropout(0.1),
    nn.Linear(8, 10),
)
rate = paddle.optimizer.lr.LinearWarmup(paddle.optimizer.lr.CosineAnnealingDecay(1e-3, T_max=20), 3, 0.0, 1e-3)
optimizer = paddle.optimizer.AdamW(rate, parameters=net.parameters(), weight_decay=0.05, multi_precision=True)
scaler = paddle.amp.GradScaler(init_loss_scaling=1024)
for _ in range(3):
    for _ in range(2):
        pictures, labels = paddle.randn([4, 3, 16, 16]), paddle.randint(0, 10, [4])
        with paddle.amp.auto_cast(level="O1", dtype="bfloat16", custom_white_list={"elementwise_add"}):
            loss = F.cross_entropy(net(pictures), F.label_smooth(F.one_hot(labels, 10)), soft_label=True) / 2
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.clear_grad()
    rate.step()
    print("loss", float(loss))
