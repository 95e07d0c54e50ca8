"""Record the operators of a training step, and compare each with numpy on this device: values, gradients, empty inputs.

    recording = recorder.record(step)
    for case in cases.of_types(recording, ["float32", "float64"]):
        result = replay.replay(case)

calls: what a recording holds. recorder: how a step is recorded; census: what the recorder did not see. formulas: the operators
in numpy. replay: a recorded operator is called again on random numbers and compared. empty, repeated: inputs without elements,
and indices that occur many times. command: the command `xpulab shapes`, which starts recorded_script in another process.
"""
