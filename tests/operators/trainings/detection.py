"""Boxes: RoI align on a pyramid, a focal loss, smooth L1 on boxes, NMS of what was found."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F
from paddle.vision import ops

paddle.seed(0)
trunk = nn.Sequential(
    nn.Conv2D(3, 8, 3, stride=2, padding=1), nn.BatchNorm2D(8), nn.Silu(), nn.Conv2D(8, 8, 3, padding=1), nn.PReLU()
)
shared, of_class, of_box = nn.Linear(8 * 9, 16), nn.Linear(16, 3), nn.Linear(16, 4)
parameters = [parameter for part in (trunk, shared, of_class, of_box) for parameter in part.parameters()]
optimizer = paddle.optimizer.Momentum(0.01, parameters=parameters)
for _ in range(3):
    pictures, corner = paddle.rand([2, 3, 32, 32]), paddle.rand([10, 2]) * 16
    boxes = paddle.concat([corner, corner + 4 + paddle.rand([10, 2]) * 10], -1)
    features = ops.roi_align(trunk(pictures), boxes, paddle.to_tensor([6, 4], "int32"), 3, spatial_scale=0.5)
    inner = F.relu(shared(features.flatten(1)))
    logits, moved = of_class(inner), of_box(inner)
    labels = F.one_hot(paddle.randint(0, 3, [10]), 3)
    loss = ops_loss = F.sigmoid_focal_loss(logits, labels, normalizer=paddle.to_tensor([10.0]))
    loss = loss + F.smooth_l1_loss(moved, paddle.randn([10, 4]) * 0.5)
    kept = ops.nms(boxes, 0.5, scores=F.sigmoid(logits).max(-1))
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    print("loss", float(loss), "kept", kept.shape[0])
