"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import FILES, dist, fault, paddle, replace_in_file

TRAINER = "paddlenlp.trainer.trainer"
FLEET = "paddle.distributed.fleet"
SHARDING = f"{FLEET}.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer:DygraphShardingOptimizer"


@fault(
    "many-cards.gradients",
    "many-cards.weights",
    "many-cards.dpo",
    "many-cards.align",
    where="ranks",
    wraps="paddle.distributed.parallel:DataParallel.forward",
)
def gradients_stay_on_their_card(real, self, *given, **named):
    """Gradients of data parallelism are not averaged: each card learns from its own rows."""
    return self._layers(*given, **named)


@fault(
    "many-cards.losses",
    "many-cards.rows",
    where="everywhere",
    smoke=("many-cards.smoke-data-parallel",),
    wraps="paddle.io:DistributedBatchSampler.__init__",
)
def every_card_gets_the_rows_of_the_first(real, self, *given, **named):
    """All ranks get the rows of rank 0, so the others of a batch are never read."""
    real(self, *given, **named)
    self.local_rank = 0


@fault("many-cards.order", "many-cards.losses", where="everywhere", wraps="paddle.io:DistributedBatchSampler.__iter__")
def several_cards_read_the_order_of_another_epoch(real, self):
    """On several cards the rows of an epoch have the order of the next one, so one card and two read other rows."""
    self.epoch += 1
    return real(self)


@fault("many-cards.gradients", where="ranks", wraps=f"{SHARDING}.reduce_gradients")
def sharded_gradients_are_summed(real, self, parameter_list, hcg):
    """With a sharded optimizer gradients are added up, not averaged."""
    real(self, parameter_list, hcg)
    with paddle.no_grad():
        for weight in parameter_list:
            if weight.grad is not None:
                weight.grad.set_value(2 * weight.grad)


@fault("many-cards.weights", "many-cards.answers", where="ranks", wraps=f"{SHARDING}._sharding_sync_parameters")
def updated_weights_are_not_sent(real, self):
    """With a sharded optimizer the weights that a rank has updated do not reach the others."""


@fault("many-cards.weights", where="ranks", lanes=("sim",), wraps=f"{TRAINER}:register_sequence_parallel_allreduce_hooks")
def gradients_of_norms_stay_on_their_rank(real, *given):
    """With divided tokens the gradients of norms and biases are those of a rank's own tokens."""


@fault("many-cards.resume", where="ranks", wraps="paddlenlp.trainer.trainer_callback:TrainerState.load_from_json")
def the_step_is_forgotten(real, *given):
    """A run goes on with its weights, and begins at the first step again."""
    state = real(*given)
    state.global_step = 0
    return state


@fault("many-cards.bf16", where="ranks", lanes=("sim",), after=f"{TRAINER}:Trainer._wrap_model")
def training_in_bf16_without_master_weights(result, self, *given, **named):
    """AdamW works on the bfloat16 weights themselves."""
    optimizer = getattr(self.optimizer, "_inner_opt", self.optimizer)
    optimizer._multi_precision = False


@fault("many-cards.lora", where="ranks", after="paddlenlp.peft.lora.lora_layers:LoRALinear.__init__")
def adapters_begin_with_other_numbers(result, self, *given, **named):
    """On several cards an adapter begins with other numbers than on one."""
    if dist.get_world_size() > 1:
        with paddle.no_grad():
            self.lora_A.scale_(1.1)


@fault("many-cards.exercise-steps", where="ranks", after="paddle.io:DistributedBatchSampler.__init__", lanes=("sim",))
def rows_are_not_divided(result, self, *given, **named):
    """Each rank gets all rows, so an epoch has as many steps as on one card."""
    self.nranks, self.local_rank = 1, 0
    self.num_samples = self.total_size = len(self.dataset)


@fault("many-cards.exercise-held", "many-cards.held", where="ranks", after=f"{SHARDING}._partition_parameters")
def the_first_rank_gets_the_whole_optimizer(mapping, self):
    """With a sharded optimizer the first rank gets the moments of all weights."""
    every = [weight for of_rank in mapping.values() for weight in of_rank]
    return {rank: every if rank == 0 else [] for rank in mapping}


@fault(
    "many-cards.resume-other",
    where="ranks",
    lanes=("sim",),
    after="paddlenlp.trainer.unified_checkpoint.unified_checkpoint:load_unified_optimizer_locally",
)
def moments_are_lost_where_matrices_are_cut(loaded, arguments, *given, **named):
    """A run that goes on with tensor parallelism begins with moments of zero."""
    if arguments.tensor_parallel_degree > 1:
        return {name: paddle.zeros_like(value) if "moment" in name else value for name, value in loaded.items()}
    return None


@fault("many-cards.choose", breaks=FILES)
def step_of_two_nodes_has_the_parts_of_one() -> None:
    """The configuration for two nodes accumulates as many parts as that for one, so a step has twice the rows."""
    parts = '"gradient_accumulation_steps": '
    replace_in_file("data/take_home/configurations/qwen2.5-7b-full-2x8x96.json", f"{parts}2", f"{parts}4")


@fault(
    "many-cards.checkpoint-forms",
    where="ranks",
    wraps="paddlenlp.trainer.unified_checkpoint.unified_checkpoint:UnifiedCheckpointHandler.load_non_merge_optimizer",
)
def moments_that_are_not_merged_stay_at_zero(_real, self, *given, **named):
    """A run that resumes from files that are not merged begins with moments of zero."""
