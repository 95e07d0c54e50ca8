"""The faults of this chapter that the stand-in of the pretrained model shows too."""

from __future__ import annotations

from xpulab.chapters.shared.fault import CELLS, FILES, fault, np, paddle, replace_in_cells, replace_in_file

MODEL = "paddlenlp.transformers:LlamaForCausalLM.from_pretrained"
TOKENIZER = "paddlenlp.transformers:AutoTokenizer.from_pretrained"


@fault("first-lora.logits", wraps="paddlenlp.transformers.llama.modeling:LlamaRotaryEmbedding.__init__")
def base_of_the_rotary_embedding_is_lost(start, self, dim, max_position_embeddings=2048, base=10000):
    """The rotary embedding has the default base, not that of the model's config."""
    start(self, dim, max_position_embeddings, 10000)


@fault("first-lora.tied", after=MODEL)
def tied_embeddings_are_untied(network, *given, **named):
    """After loading, the output layer is a copy of the embedding, and one of its numbers is another."""
    table = network.lm_head.weight.numpy().copy()
    table.flat[7] += 0.25
    network.lm_head.weight = paddle.create_parameter(list(table.shape), "float32")
    network.lm_head.weight.set_value(table)


@fault("first-lora.weights-of-the-files", after=MODEL, lanes=("sim",))
def one_weight_is_left_random(network, *given, **named):
    """One weight of the model is not loaded and keeps its random numbers."""
    weight = next(weight for name, weight in network.named_parameters() if name.endswith("up_proj.weight"))
    paddle.seed(11)
    weight.set_value(paddle.randn(weight.shape) * float(weight.std()))


@fault("first-lora.labels", breaks=CELLS)
def lesson_counts_the_question() -> None:
    """The labels of the lesson count the question too, not only its answer."""
    replace_in_cells("labels = [-100] * (len(asked) - 1) + answered", "labels = asked[1:] + answered")


@fault("first-lora.turns", smoke=("first-lora.turns",), after=TOKENIZER)
def template_without_the_system_turn(tokenizer, *given, **named):
    """The chat template leaves the system turn out."""
    apply = tokenizer.apply_chat_template

    def without_system(*given, **named):
        text = apply(*given, **named)
        return text[text.index("<|im_start|>user") :]

    tokenizer.apply_chat_template = without_system


@fault("first-lora.merged-weights", wraps="paddlenlp.peft.lora.lora_layers:LoRALinear.get_delta_weight")
def adapter_is_merged_twice(delta, self, *given):
    """Merging adds the adapter twice."""
    return 2 * delta(self, *given)


@fault("first-lora.mean-of-the-counted", wraps="paddle.nn.functional:cross_entropy")
def sum_of_losses_includes_labels_that_do_not_count(cross_entropy, scores, labels, *given, **named):
    """The sum of cross_entropy includes the losses of ignored labels, as if each were the first class."""
    if named.get("reduction") == "sum":
        labels = labels * (labels >= 0).astype(labels.dtype)
    return cross_entropy(scores, labels, *given, **named)


@fault("first-lora.bf16-file-type", wraps="paddlenlp.transformers.model_utils:safe_save_file")
def files_of_half_precision_are_float32(save_file, tensors, *given, **named):
    """Weights in float16 are written to safetensors files as float32."""
    longer = {name: np.float32(array) if array.dtype == np.float16 else array for name, array in tensors.items()}
    return save_file(longer, *given, **named)


@fault("first-lora.adapter-layers", "first-lora.exercise-rank", after="paddlenlp.peft:LoRAConfig.__post_init__")
def adapter_on_the_attention_only(_result, self):
    """The layers of the feed-forward part get no adapter."""
    self.target_modules = [target for target in self.target_modules if any(f"{layer}_proj" in target for layer in "qkvo")]


@fault("first-lora.adapter-layers", "first-lora.others-unchanged", after="paddlenlp.peft:LoRAModel.mark_only_lora_as_trainable")
def norms_train_too(_result, self):
    """The norms beside the adapter train too."""
    for name, weight in self.model.named_parameters():
        if "_layernorm" in name:
            weight.stop_gradient = False


@fault("first-lora.merged-file", "first-lora.merged-loaded", wraps="paddlenlp.transformers:PretrainedModel.save_pretrained")
def merged_model_is_saved_with_one_old_weight(save, self, folder, *given, state_dict=None, **named):
    """The file of the merged model has one weight from before the merge."""
    if state_dict and any("q_proj" in name for name in state_dict):
        name = min(name for name in state_dict if "q_proj" in name)
        state_dict = {**state_dict, name: state_dict[name] * 0.5}
    return save(self, folder, *given, **({"state_dict": state_dict} if state_dict else {}), **named)


@fault("first-lora.padding", "first-lora.exercise-padding", after="paddlenlp.data:DataCollatorForSeq2Seq.__call__")
def attention_mask_of_a_batch_is_all_ones(batch, self, *given, **named):
    """The attention mask of a padded batch does not mark the padding."""
    batch["attention_mask"] = paddle.ones_like(batch["attention_mask"])
    return batch


@fault("first-lora.every-b-moves", wraps="paddle.optimizer:AdamW.__init__")
def optimizer_leaves_the_last_matrix_out(start, self, *given, parameters, **named):
    """The optimizer leaves out the last matrix that it was given."""
    start(self, *given, parameters=parameters[:-1], **named)


@fault("first-lora.next-token", breaks=CELLS)
def label_is_the_token_itself() -> None:
    """The label of a position is the token there, not the one after it; the labels spell the same answer."""
    replace_in_cells("[-100] * (len(asked) - 1) + answered + [-100]", "[-100] * len(asked) + answered")


@fault("first-lora.take-home", breaks=FILES)
def script_has_half_the_scale() -> None:
    """The adapter in the script to take home has half the scale of the one in the lesson."""
    replace_in_file("data/take_home/first_lora.py", "lora_alpha=2 * rank", "lora_alpha=rank")


@fault("first-lora.places", lanes=("sim",), after=MODEL)
def merged_model_is_loaded_on_the_cpu(network, _cls, folder, *given, **named):
    """A model that save_pretrained has written is loaded on the CPU, whatever device is selected."""
    return network.to("cpu") if folder.endswith("merged") else None
