"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import CELLS, FILES, fault, replace_in_cells, replace_in_file


@fault(
    "auto-parallel-config.parameters",
    "auto-parallel-config.published",
    smoke=("auto-parallel-config.smoke-memory",),
    wraps="paddlenlp.transformers:LlamaForCausalLM.__init__",
)
def head_is_the_embedding(real, self, config):
    """A Llama of PaddleNLP uses its embedding as head although its configuration does not say so."""
    config.tie_word_embeddings = True
    real(self, config)


@fault(
    "auto-parallel-config.memory",
    "auto-parallel-config.memory-of-two",
    lanes=("sim",),
    where="ranks",
    wraps="paddle.optimizer:AdamW.__init__",
)
def a_third_moment(real, self, *given, **named):
    """AdamW keeps the largest second moment too, as the option amsgrad does."""
    real(self, *given, **{**named, "amsgrad": True})


@fault("auto-parallel-config.arguments", where="ranks", after="paddlenlp.trainer:TrainingArguments.__post_init__")
def data_parallel_degree_without_sharding(_result, self):
    """PaddleNLP divides the number of cards by all degrees but that of sharding to get the degree of data parallelism."""
    self.data_parallel_degree *= max(self.sharding_parallel_degree, 1)


@fault("parallel-plan.launch-files", wraps="paddle.distributed.launch.controllers.controller:Controller.pod_replicas")
def launcher_starts_one_process_a_node(real, self):
    """Paddle's launcher starts one process on each node, whatever cards it is given."""
    return 1


@fault("parallel-plan.same-code", lanes=("cpu", "sim"), breaks=FILES)
def script_labels_each_token_with_itself() -> None:
    """The script labels each token with itself, and the chapter with the token that follows."""
    replace_in_file("data/take_home/parallel.py", "tokens[1 : samples * length + 1]", "tokens[: samples * length]")


@fault("auto-parallel-config.exercise-degrees", "auto-parallel-config.parameters", breaks=CELLS)
def keys_not_shared_by_heads() -> None:
    """The size of Llama-2 70B has as many heads of keys and values as of queries."""
    replace_in_cells("heads=64, kv_heads=8, vocabulary=32000", "heads=64, kv_heads=64, vocabulary=32000")


@fault("auto-parallel-config.exercise-stage", breaks=CELLS)
def step_in_single_precision() -> None:
    """The step that the chapter plans computes in float32, and the text in bf16."""
    replace_in_cells("Training(sequence=4096, batch=1024)", "Training(sequence=4096, batch=1024, precision=cost.FLOAT32)")


@fault("parallel-plan.choose", breaks=FILES)
def configuration_shards_over_too_many_cards() -> None:
    """The configuration of full fine-tuning of 14B for eight cards shards over eight, and cuts the matrices too."""
    sharding = '"sharding_parallel_degree": '
    replace_in_file("data/take_home/configurations/qwen2.5-14b-full-8x80.json", f"{sharding}4", f"{sharding}8")
