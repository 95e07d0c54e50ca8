"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import dist, fault, paddle

TRAINER = "paddlenlp.trainer.trainer"
FLEET = "paddle.distributed.fleet"
SHARDING = f"{FLEET}.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer:DygraphShardingOptimizer"
STAGES = f"{FLEET}.meta_parallel.sharding"
MP = f"{FLEET}.layers.mpu"


@fault(
    where="ranks",
    also_on=("sim",),
    detected_by=("many-cards.gradients", "many-cards.weights", "many-cards.dpo", "many-cards.align"),
    smoke=("many-cards.smoke-data-parallel",),
    wraps="paddle.distributed.parallel:DataParallel.forward",
)
def gradients_stay_on_their_card(real, self, *given, **named):
    """Gradients of data parallelism are not averaged: each card learns from its own rows."""
    return self._layers(*given, **named)


@fault(
    where="everywhere",
    also_on=("sim",),
    detected_by=("many-cards.losses", "many-cards.rows"),
    smoke=("many-cards.smoke-data-parallel",),
    wraps="paddle.io:DistributedBatchSampler.__init__",
)
def every_card_gets_the_rows_of_the_first(real, self, *given, **named):
    """All ranks get the rows of rank 0, so the others of a batch are never read."""
    real(self, *given, **named)
    self.local_rank = 0


@fault(
    where="everywhere",
    also_on=("sim",),
    detected_by=("many-cards.order", "many-cards.losses"),
    smoke=("many-cards.smoke-data-parallel",),
    wraps="paddle.io:DistributedBatchSampler.__iter__",
)
def several_cards_read_the_order_of_another_epoch(real, self):
    """On several cards the rows of an epoch have the order of the next one, so one card and two read other rows."""
    self.epoch += 1
    return real(self)


@fault(where="ranks", detected_by=("many-cards.gradients",), wraps=f"{SHARDING}.reduce_gradients", also_on=("sim",))
def sharded_gradients_are_summed(real, self, parameter_list, hcg):
    """With a sharded optimizer gradients are added up, not averaged."""
    real(self, parameter_list, hcg)
    with paddle.no_grad():
        for weight in parameter_list:
            if weight.grad is not None:
                weight.grad.set_value(2 * weight.grad)


@fault(where="ranks", detected_by=("many-cards.weights", "many-cards.answers"), wraps=f"{SHARDING}._sharding_sync_parameters")
def updated_weights_are_not_sent(real, self):
    """With a sharded optimizer the weights that a rank has updated do not reach the others."""


@fault(
    where="ranks",
    device="sim",
    detected_by=("many-cards.gradients",),
    wraps=f"{STAGES}.group_sharded_stage2:GroupShardedStage2._get_reduce_fn",
)
def gradients_of_stage_2_stay_on_their_rank(real, self, index, weight, rank):
    """In stage 2 a gradient is not added to that of the rank that updates its weight."""
    return lambda *_: None


@fault(
    where="ranks",
    device="sim",
    detected_by=("many-cards.weights",),
    wraps=f"{STAGES}.group_sharded_optimizer_stage2:GroupShardedOptimizerStage2._broadcast_params",
)
def weights_of_stage_2_stay_on_their_rank(real, self):
    """In stage 2 the weights that a rank has updated do not reach the others."""


@fault(
    where="ranks",
    device="sim",
    detected_by=("many-cards.gradients",),
    wraps=f"{STAGES}.group_sharded_stage3:GroupShardedStage3._get_allreduce_fn",
)
def gradients_of_stage_3_are_summed(real, self, weight):
    """In stage 3 the gradients of divided weights are added up, not averaged."""
    reduce = real(self, weight)

    def summed(*given):
        mean, self._world_size_scaling = self._world_size_scaling, 1.0
        reduce(*given)
        self._world_size_scaling = mean

    return summed


@fault(
    where="ranks",
    device="sim",
    detected_by=("many-cards.held",),
    wraps=f"{STAGES}.group_sharded_stage3:GroupShardedStage3._flatten_layer_params",
)
def weights_of_stage_3_stay_whole(real, self, *given):
    """In stage 3 each rank keeps all weights, their gradients and their moments."""
    self._segment_size = 2**62
    return real(self, *given)


@fault(where="ranks", device="sim", detected_by=("many-cards.losses",), wraps=f"{MP}.mp_layers:mp_ops._mp_allreduce")
def row_parallel_layers_do_not_add(real, tensor, *given, **named):
    """A layer that is cut by rows returns the part of its own rank."""
    return tensor


@fault(where="ranks", device="sim", detected_by=("many-cards.gradients",), wraps=f"{MP}.mp_layers:mp_ops._c_identity")
def gradients_of_inputs_are_not_added(real, tensor, *given, **named):
    """In backward, a layer that is cut by columns passes on the gradient of its own part only."""
    return tensor


@fault(where="ranks", device="sim", detected_by=("many-cards.losses",), after=f"{MP}.mp_layers:VocabParallelEmbedding.__init__")
def rows_of_the_vocabulary_shifted(result, self, *given, **named):
    """On the second rank of a cut vocabulary each token takes the row after its own."""
    if self.rank == 1:
        self.vocab_start_index -= 1


@fault(
    where="ranks",
    device="sim",
    detected_by=("many-cards.gpt",),
    wraps=f"{TRAINER}:register_sequence_parallel_allreduce_hooks",
)
def gradients_of_norms_stay_on_their_rank(real, *given):
    """With divided tokens the gradients of norms and biases are those of a rank's own tokens."""


@fault(
    where="ranks",
    device="sim",
    detected_by=("many-cards.weights",),
    wraps=f"{FLEET}.meta_optimizers.dygraph_optimizer.hybrid_parallel_optimizer:HybridParallelClipGrad._comm_and_clip",
)
def clipped_by_the_norm_of_its_own_part(real, self, params_grads, norms_dist, norms_not_dist, *given):
    """Clipping takes the norm of a rank's own part for that of the model."""
    self._global_norm = lambda *norms: None
    return real(self, params_grads, norms_dist, norms_not_dist, *given)


@fault(
    where="ranks",
    device="sim",
    detected_by=("many-cards.weights",),
    after="paddlenlp.trainer.unified_checkpoint.utils:distributed_gather",
)
def parts_joined_in_reverse(parts, *given, **named):
    """Parts of a weight are joined in reverse order when a model is saved."""
    return parts and parts[::-1]


@fault(
    where="ranks",
    device="sim",
    detected_by=("many-cards.gradients",),
    wraps=f"{FLEET}.meta_parallel.pipeline_parallel:PipelineParallel._backward_step",
)
def gradients_of_a_pipeline_are_summed(real, self, input_tensor, output_tensor, *given, **named):
    """The gradient of a pipeline is the sum of its micro-batches, not the mean."""
    if self.is_pipeline_last_stage():
        output_tensor = output_tensor * self.accumulate_steps
    return real(self, input_tensor, output_tensor, *given, **named)


@fault(
    where="ranks",
    also_on=("sim",),
    detected_by=("many-cards.resume",),
    wraps=f"{TRAINER}:Trainer._load_optimizer_and_scheduler",
)
def the_optimizer_is_not_loaded(real, self, checkpoint):
    """A run goes on with an optimizer and a schedule that begin again."""


@fault(
    where="ranks",
    also_on=("sim",),
    detected_by=("many-cards.resume",),
    wraps="paddlenlp.trainer.trainer_callback:TrainerState.load_from_json",
)
def the_step_is_forgotten(real, *given):
    """A run goes on with its weights, and begins at the first step again."""
    state = real(*given)
    state.global_step = 0
    return state


@fault(where="ranks", device="sim", detected_by=("many-cards.bf16",), after=f"{TRAINER}:Trainer._wrap_model")
def training_in_bf16_without_master_weights(result, self, *given, **named):
    """AdamW works on the bfloat16 weights themselves."""
    optimizer = getattr(self.optimizer, "_inner_opt", self.optimizer)
    optimizer._multi_precision = False


@fault(
    where="ranks",
    also_on=("sim",),
    detected_by=("many-cards.dpo",),
    wraps="paddlenlp.trl.dpo_trainer:DPOTrainer._wrap_ref_model",
)
def another_reference_on_one_rank(real, self, model):
    """One rank compares with a reference model that is not the start model."""
    if dist.get_rank() == dist.get_world_size() - 1:
        with paddle.no_grad():
            for weight in model.parameters():
                weight.scale_(1.01)
    return real(self, model)


@fault(
    where="ranks",
    also_on=("sim",),
    detected_by=("many-cards.lora",),
    after="paddlenlp.peft.lora.lora_layers:LoRALinear.__init__",
)
def adapters_begin_with_other_numbers(result, self, *given, **named):
    """On several cards an adapter begins with other numbers than on one."""
    if dist.get_world_size() > 1:
        with paddle.no_grad():
            self.lora_A.scale_(1.1)


@fault(
    where="ranks",
    also_on=("sim",),
    detected_by=("many-cards.refused",),
    wraps="paddle.distributed.fleet.base.topology:HybridCommunicateGroup._check_valid_topo",
)
def degrees_are_not_compared_with_the_cards(real, self):
    """Degrees whose product is not the number of cards are accepted."""
    return True


@fault(
    where="ranks",
    also_on=("sim",),
    detected_by=("many-cards.exercise-steps",),
    after="paddle.io:DistributedBatchSampler.__init__",
)
def rows_are_not_divided(result, self, *given, **named):
    """Each rank gets all rows, so an epoch has as many steps as on one card."""
    self.nranks, self.local_rank = 1, 0
    self.num_samples = self.total_size = len(self.dataset)


@fault(
    where="ranks",
    also_on=("sim",),
    detected_by=("many-cards.exercise-held", "many-cards.held"),
    after=f"{SHARDING}._partition_parameters",
)
def the_first_rank_gets_the_whole_optimizer(mapping, self):
    """With a sharded optimizer the first rank gets the moments of all weights."""
    every = [weight for of_rank in mapping.values() for weight in of_rank]
    return {rank: every if rank == 0 else [] for rank in mapping}


@fault(
    where="ranks",
    device="sim",
    detected_by=("many-cards.resume-other",),
    after="paddlenlp.trainer.unified_checkpoint.unified_checkpoint:load_unified_optimizer_locally",
)
def moments_are_lost_where_matrices_are_cut(loaded, arguments, *given, **named):
    """A run that goes on with tensor parallelism begins with moments of zero."""
    if arguments.tensor_parallel_degree > 1:
        return {name: paddle.zeros_like(value) if "moment" in name else value for name, value in loaded.items()}
    return None
