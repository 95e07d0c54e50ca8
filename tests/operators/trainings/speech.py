"""Speech: a spectrogram by Fourier transforms, one-dimensional convolutions, a triplet loss."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

paddle.seed(0)
net = nn.Sequential(
    nn.Conv1D(33, 16, 5, padding=2),
    nn.BatchNorm1D(16),
    nn.GLU(1),
    nn.Conv1D(8, 8, 3, groups=8),
    nn.AdaptiveMaxPool1D(4),
    nn.Flatten(),
)
optimizer = paddle.optimizer.NAdam(1e-3, parameters=net.parameters())
for _ in range(3):
    waves = paddle.randn([6, 640])
    spectrum = paddle.signal.stft(
        waves, n_fft=64, hop_length=32, window=paddle.audio.functional.get_window("hann", 64, dtype="float32")
    )
    powers = paddle.log(spectrum.abs().square() + 1e-6)
    near, other, far = F.normalize(net(powers)).split(3)
    loss = F.triplet_margin_loss(near, other, far)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    print("loss", float(loss))
