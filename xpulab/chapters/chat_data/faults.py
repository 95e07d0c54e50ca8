"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import CELLS, FILES, fault, np, paddle, replace_in_cells, replace_in_file

SCRIPT = "data/take_home/chat_data.py"
LLAMA = "paddlenlp.transformers.llama.modeling"


@fault("chat-data.formats", smoke=("chat-data.formats",), breaks=FILES)
def human_is_read_as_the_system() -> None:
    """The questions of ShareGPT's conversations are read as system turns."""
    replace_in_file(SCRIPT, '"human": "user"', '"human": "system"')


@fault("chat-data.mask", "chat-data.templates", "chat-data.exercise-labels", breaks=FILES)
def end_token_does_not_count() -> None:
    """The token that ends an answer does not count in the loss, so the model does not learn to stop."""
    replace_in_file(SCRIPT, "else end + len(tokenizer.eos_token)", "else end")


@fault("chat-data.templates", wraps="jinja2:Template.render")
def blank_lines_of_a_template_are_lost(render, self, *given, **named):
    """A chat template's blank lines are lost, as when it is stored in a file that a formatter rewrites."""
    return render(self, *given, **named).replace("\n\n", "\n")


@fault("chat-data.refused-turn", breaks=CELLS)
def template_skips_system_turns() -> None:
    """A template for a model without a system turn skips the turn silently."""
    replace_in_cells(
        "other.init_chat_template(template.text)", "other.init_chat_template(template.text.replace('raise_exception', ''))"
    )


@fault("chat-data.truncation", breaks=FILES)
def cut_keeps_the_end() -> None:
    """A row that is too long loses its beginning instead of its end."""
    replace_in_file(SCRIPT, "ids[:max_length], counted[:max_length]", "ids[-max_length:], counted[-max_length:]")


@fault("chat-data.packed-equals-single", lanes=("cpu", "sim"), wraps=f"{LLAMA}:LlamaModel._prepare_decoder_attention_mask")
def packed_examples_read_each_other(mask, attention_mask, *given):
    """The model takes an ordinary mask instead of that of packed rows, so an example reads the ones before it."""
    if attention_mask.ndim == 4:
        attention_mask = paddle.ones([attention_mask.shape[0], attention_mask.shape[-1]], dtype="int64")
    return mask(attention_mask, *given)


@fault("chat-data.packs", "chat-data.exercise-packs", breaks=FILES)
def packed_rows_are_longer_than_the_limit() -> None:
    """A packed row takes one example more than fits."""
    replace_in_file(SCRIPT, "if room[place] >= length)", "if room[place] > 0)")


@fault("chat-data.split", breaks=CELLS)
def split_is_by_conversation() -> None:
    """The side of a row is decided by its whole conversation, so its beginning can be on the other side."""
    replace_in_cells('int(fingerprint(row["messages"], user_turns=1)[:8], 16)', 'int(fingerprint(row["messages"])[:8], 16)')


@fault("chat-data.mix", breaks=CELLS)
def small_source_is_drawn_with_replacement() -> None:
    """A mixture draws rows at random with replacement, so some are left out and others come often."""
    replace_in_cells("chance.permutation(len(rows)) for", "chance.choice(len(rows), len(rows)) for")


@fault("chat-data.survey", wraps="numpy:setdiff1d")
def difference_of_sets_is_empty(_real, first, second, **named):
    """numpy.setdiff1d returns nothing, so that duplicates are not found."""
    return np.asarray(first)[:0]
