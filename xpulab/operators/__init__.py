"""Record the operators of a training step, and compare each with numpy on this device: values and gradients.

    recording = recorder.record(step)
    for call in recording:
        result = replay.replay(call, seed, device)

calls: what a recording holds. recorder: how a step is recorded. formulas, movements: the operators in numpy; reference: which
one a call is compared with. inputs: random numbers for a call. replay: a call is made again and compared; tolerances,
differences: values and gradients. steps: steps of tiny models. table: what a replay found.
kernel_log: the kernels that a step launches; prediction: where a P800 computes each; kernel_places: both, in a chapter.

command runs outside, without Paddle: the command `xpulab shapes`, which starts recorded_script in another process. All other
modules run in the process that computes.
"""
