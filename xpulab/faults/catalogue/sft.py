"""Faults that 02_sft must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault, replace_in_cells, when_defined


@fault(
    "02_sft",
    detected_by=("sft.loss-falls", "sft.every-weight-moves", "sft.trajectory", "sft.recall"),
    smoke=("sft.smoke-every-weight-moves",),
)
def optimizer_does_not_step() -> None:
    """The optimizer's step does nothing."""
    import paddle

    paddle.optimizer.AdamW.step = lambda self: None


@fault("02_sft", reason_contains="nan", detected_by=("sft.loss-falls", "sft.recall"))
def nan_loss_stops_training() -> None:
    """The loss is NaN; PaddleNLP's own Trainer raises an error, and the notebook ends."""
    import paddlenlp.transformers.qwen2.modeling as qwen2

    forward = qwen2.Qwen2PretrainingCriterion.forward
    qwen2.Qwen2PretrainingCriterion.forward = lambda self, *given: forward(self, *given) * float("nan")


@fault("02_sft", detected_by=("sft.smoke-loss-is-finite",), smoke=("sft.smoke-loss-is-finite",))
def nan_loss_from_the_second_step() -> None:
    """The loss is NaN from the second step on."""
    import itertools

    import paddlenlp.transformers.qwen2.modeling as qwen2

    forward, steps = qwen2.Qwen2PretrainingCriterion.forward, itertools.count(1)

    def nan_after_the_first(self, *given):
        return forward(self, *given) * (1.0 if next(steps) == 1 else float("nan"))

    qwen2.Qwen2PretrainingCriterion.forward = nan_after_the_first


@fault(
    "02_sft",
    detected_by=("sft.loss-falls", "sft.gradients", "sft.logits"),
    smoke=("sft.smoke-every-weight-moves",),
)
def nan_logits() -> None:
    """The logits are NaN; on the CPU their cross entropy is still ln V, so the loss is finite and constant."""
    import paddlenlp.transformers.qwen2.modeling as qwen2

    forward = qwen2.Qwen2LMHead.forward
    qwen2.Qwen2LMHead.forward = lambda self, *given, **named: forward(self, *given, **named) * float("nan")


@fault("02_sft", detected_by=("sft.gradients",))
def doubled_gradients() -> None:
    """Every gradient is twice as large, which AdamW hides from the loss."""
    import paddle

    backward = paddle.Tensor.backward
    paddle.Tensor.backward = lambda self, *given, **named: backward(self * 2, *given, **named)


@fault("02_sft", detected_by=("sft.labels-are-the-next-token", "sft.recall"))
def labels_not_shifted() -> None:
    """The labels are not shifted by one, so the model learns to repeat the token that it reads."""

    def in_the_notebook(names):
        encode = names["encode"]

        def unshifted(tokenizer, row):
            example = encode(tokenizer, row)
            return {**example, "labels": [-100, *example["labels"][:-1]]}

        names["encode"] = unshifted

    when_defined("encode", in_the_notebook)


@fault("02_sft", detected_by=("sft.attention-mask", "sft.logits", "sft.padding"))
def attention_mask_ignored() -> None:
    """The attention mask is ignored, so tokens attend to padding."""
    import paddle
    from paddlenlp.transformers.qwen2.modeling import Qwen2Model

    mask = Qwen2Model._prepare_decoder_attention_mask

    def without_mask(attention_mask, *given):
        return mask(paddle.ones_like(attention_mask), *given)

    Qwen2Model._prepare_decoder_attention_mask = staticmethod(without_mask)


@fault("02_sft", detected_by=("sft.every-example-is-seen",))
def examples_left_out() -> None:
    """Every second example is never used."""

    def in_the_notebook(names):
        get = names["Examples"].__getitem__
        names["Examples"].__getitem__ = lambda self, index: get(self, index // 2 * 2)

    when_defined("Examples", in_the_notebook)


@fault("02_sft", detected_by=("sft.schedule",))
def learning_rate_is_constant() -> None:
    """The learning rate keeps its first value."""
    import paddle

    paddle.optimizer.lr.LambdaDecay.get_lr = lambda self: self.base_lr


@fault("02_sft", detected_by=("sft.trajectory",))
def no_momentum() -> None:
    """The optimizer keeps no momentum."""
    import paddle

    start = paddle.optimizer.AdamW.__init__

    def without(self, *given, **named):
        start(self, *given, **{**named, "beta1": 0.0})

    paddle.optimizer.AdamW.__init__ = without


@fault("02_sft", detected_by=("sft.trajectory",))
def gradients_not_clipped() -> None:
    """Gradients are not clipped to the largest norm that is allowed."""
    import paddle

    paddle.nn.ClipGradByGlobalNorm.__call__ = lambda self, pairs: pairs


@fault("02_sft", detected_by=("sft.repeat-losses", "sft.repeat-weights"))
def gradients_differ_between_runs() -> None:
    """Gradients have a small random error, another one in each run."""
    import random

    import paddle

    step = paddle.optimizer.AdamW.step
    noise = random.Random()

    def with_noise(self):
        for weight in self._parameter_list:
            if weight.grad is not None:
                weight.grad.set_value(weight.grad * (1 + 1e-4 * noise.random()))
        step(self)

    paddle.optimizer.AdamW.step = with_noise


@fault("02_sft", detected_by=("sft.gradients", "sft.logits"))
def linear_layers_in_bfloat16() -> None:
    """Linear layers round their inputs and weights to bfloat16."""
    import paddle

    linear = paddle.nn.functional.linear

    def rounded(x, weight, bias=None, name=None):
        return linear(*(each.astype("bfloat16").astype(x.dtype) for each in (x, weight)), bias)

    paddle.nn.functional.linear = rounded


@fault("02_sft", detected_by=("sft.logits", "sft.gradients"))
def rotary_positions_with_another_base() -> None:
    """Rotary positions use another base frequency."""
    from paddlenlp.transformers.qwen2.modeling import Qwen2RotaryEmbedding

    start = Qwen2RotaryEmbedding.__init__

    def __init__(self, dim, max_position_embeddings=2048, base=10000):
        start(self, dim, max_position_embeddings, base / 10)

    Qwen2RotaryEmbedding.__init__ = __init__


@fault("02_sft", detected_by=("sft.evaluation",))
def evaluates_the_training_set() -> None:
    """evaluate() uses the training set."""
    from paddlenlp.trl import SFTTrainer

    evaluate = SFTTrainer.evaluate
    SFTTrainer.evaluate = lambda self, *given, **named: evaluate(self, self.train_dataset)


@fault("02_sft", detected_by=("sft.saved",))
def saved_in_bfloat16() -> None:
    """save_pretrained rounds the weights to bfloat16."""
    from paddlenlp.transformers import PretrainedModel

    save = PretrainedModel.save_pretrained

    def save_rounded(self, *given, **named):
        before = [weight.clone() for weight in self.parameters()]
        for weight in self.parameters():
            weight.set_value(weight.astype("bfloat16").astype(weight.dtype))
        save(self, *given, **named)
        for weight, value in zip(self.parameters(), before, strict=True):
            weight.set_value(value)

    PretrainedModel.save_pretrained = save_rounded


@fault("02_sft", device="sim", detected_by=("device-proof.sft-places",), smoke=("sft.smoke-places",))
def trains_on_the_cpu() -> None:
    """The model is on the CPU, whatever device is selected."""

    def in_the_notebook(names):
        new = names["new_model"]
        names["new_model"] = lambda: new().to("cpu")
        names["network"].to("cpu")

    when_defined("new_model", in_the_notebook)


@fault("02_sft", detected_by=("sft.decay",))
def no_weight_decay() -> None:
    """Weight decay is ignored."""
    import paddle

    begin = paddle.optimizer.AdamW.__init__
    paddle.optimizer.AdamW.__init__ = lambda self, *given, **named: begin(self, *given, **{**named, "weight_decay": 0.0})


@fault("02_sft", detected_by=("sft.decay-spares-norms",), also_on=("sim",))
def decay_on_norms() -> None:
    """Weight decay applies to norms and biases too."""
    import paddle

    begin = paddle.optimizer.AdamW.__init__
    everything = {"apply_decay_param_fun": lambda name: True}
    paddle.optimizer.AdamW.__init__ = lambda self, *given, **named: begin(self, *given, **{**named, **everything})


@fault("02_sft", detected_by=("sft.shuffled",))
def not_shuffled() -> None:
    """The training examples are never shuffled."""
    import paddle.io
    import paddlenlp.utils.batch_sampler as paddlenlp

    def never_shuffles(sampler):
        begin = sampler.__init__
        sampler.__init__ = lambda self, *given, **named: begin(self, *given, **{**named, "shuffle": False})

    for sampler in (paddle.io.BatchSampler, paddle.io.DistributedBatchSampler, paddlenlp.DistributedBatchSampler):
        never_shuffles(sampler)


@fault("02_sft", detected_by=("device-proof.sft-bits",))
def moments_in_bfloat16() -> None:
    """The optimizer's moments are rounded to bfloat16."""
    import paddle

    step = paddle.optimizer.AdamW.step

    def step_and_round(self):
        step(self)
        for kind, of_each in self._accumulators.items():
            for value in of_each.values() if "moment" in kind else ():
                value.set_value(value.astype("bfloat16").astype("float32"))

    paddle.optimizer.AdamW.step = step_and_round


@fault("02_sft", detected_by=("sft.shuffled",))
def same_order_in_every_epoch() -> None:
    """Every epoch has the order of the first."""
    from paddle.io import RandomSampler

    draw = RandomSampler.__iter__

    def first_order(self):
        self.drawn = getattr(self, "drawn", None) or list(draw(self))
        return iter(self.drawn)

    RandomSampler.__iter__ = first_order


@fault("02_sft", detected_by=("sft.padding",))
def labels_of_padding_count() -> None:
    """The labels of padding are the padding token, so the model learns padding too."""
    from paddlenlp.data import DataCollatorForSeq2Seq

    collate = DataCollatorForSeq2Seq.__call__

    def with_labels(self, *given, **named):
        self.label_pad_token_id = self.tokenizer.pad_token_id
        return collate(self, *given, **named)

    DataCollatorForSeq2Seq.__call__ = with_labels


@fault("02_sft", detected_by=("sft.cached-positions",))
def cached_steps_have_position_0() -> None:
    """Every cached step of a generation has position 0."""
    from paddlenlp.transformers import Qwen2ForCausalLM

    prepare = Qwen2ForCausalLM.prepare_inputs_for_generation

    def without_positions(self, *given, past_key_values=None, **named):
        inputs = prepare(self, *given, past_key_values=past_key_values, **named)
        return {**inputs, "position_ids": None} if past_key_values else inputs

    Qwen2ForCausalLM.prepare_inputs_for_generation = without_positions


@fault("02_sft", detected_by=("sft.accumulation",))
def accumulated_gradients_are_summed() -> None:
    """The gradients of accumulated batches are added up, not averaged."""
    from paddlenlp.trl import SFTTrainer

    loss_of = SFTTrainer.compute_loss

    def times_the_steps(self, *given, **named):
        return loss_of(self, *given, **named) * self.args.gradient_accumulation_steps

    SFTTrainer.compute_loss = times_the_steps


@fault("02_sft", detected_by=("sft.shared-functions",))
def prompt_of_the_lesson_differs() -> None:
    """The lesson's prompt is another text than that of later chapters."""
    replace_in_cells("Question: {question}\\nAnswer:", "Q: {question}\\nA:")


@fault("02_sft", detected_by=("sft.take-home-code",))
def script_does_not_shift_the_labels() -> None:
    """The script to take home does not shift the labels."""
    import tempfile
    from pathlib import Path

    from xpulab.notebook import take_home

    real = take_home.script_path

    def unshifted(script):
        path, text = Path(tempfile.mkdtemp()) / f"{script}.py", real(script).read_text(encoding="utf-8")
        path.write_text(text.replace("[-100] * (len(asked) - 1) + answered + [-100]", "[-100] * len(asked) + answered"))
        return path

    take_home.script_path = unshifted
