"""Write docs/operators.md: which operators the training of tiny models calls, where, and which check compares each.

.venv/bin/python tools/operator_census.py            # --check: exit code 1 where the page names other checks than this table

It records one step, forward, backward and optimizer, of Llama, Qwen2 and PaddleNLP's Qwen2-MoE, of LoRA and of DPO on
the CPU.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xpulab import files

if TYPE_CHECKING:
    from xpulab.operators.calls import Recording

PAGE = files.ROOT / "docs" / "operators.md"

_ARITHMETIC = (
    "add radd sub subtract rsub mul rmul multiply div divide truediv rdiv rtruediv floordiv floor_divide mod remainder"
)

COVERED: Mapping[str, str] = {
    **dict.fromkeys(_ARITHMETIC.split(), "numerics.arithmetic"),
    **dict.fromkeys(("maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"), "numerics.arithmetic"),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor", "logical_not"), "numerics.arithmetic"),
    **dict.fromkeys(("matmul", "linear", "bmm", "mm"), "numerics.products"),
    **dict.fromkeys(("sum", "mean", "mean_all", "max", "min", "prod", "logsumexp", "p_norm"), "numerics.reductions"),
    **dict.fromkeys(("softmax", "log_softmax", "cumsum"), "numerics.softmax"),
    **dict.fromkeys(("exp", "log", "sqrt", "rsqrt", "square", "abs", "sin", "cos", "tanh", "erf"), "numerics.functions"),
    **dict.fromkeys(
        ("pow", "scale", "clip", "sigmoid", "logsigmoid", "relu", "silu", "swish", "gelu", "reciprocal"), "numerics.functions"
    ),
    **dict.fromkeys(("cast", "astype"), "numerics.casts"),
    **dict.fromkeys(("layer_norm", "fused_rms_norm"), "numerics.norms"),
    **dict.fromkeys(("cross_entropy_with_softmax",), "numerics.cross-entropy"),
    **dict.fromkeys(("flash_attn", "scaled_dot_product_attention"), "operators.attention"),
    **dict.fromkeys(("getitem_dygraph", "slice", "strided_slice"), "indexing.get"),
    **dict.fromkeys(("setitem_dygraph", "set_value", "set_value_with_tensor"), "indexing.set"),
    **dict.fromkeys(("reshape", "flatten", "transpose", "unsqueeze", "squeeze", "expand"), "indexing.moves"),
    **dict.fromkeys(("tile", "concat", "stack", "split"), "indexing.moves"),
    **dict.fromkeys(["unbind", "flip", "roll", "tril", "triu", "repeat_interleave", "pad"], "indexing.moves"),
    **dict.fromkeys(("gather", "gather_nd", "index_select", "take_along_axis", "embedding", "one_hot"), "indexing.selections"),
    **dict.fromkeys(("masked_select",), "indexing.selections"),
    **dict.fromkeys(("scatter", "scatter_nd_add", "put_along_axis", "index_put", "index_add"), "indexing.writes"),
    **dict.fromkeys(("where", "masked_fill"), "indexing.writes"),
    **dict.fromkeys(("adamw", "adam", "sgd", "momentum"), "sft.optimizer-options"),
    **dict.fromkeys(("swiglu",), "numerics.arithmetic"),
    **dict.fromkeys(("fused_rotary_position_embedding",), "operators.rotary"),
    **dict.fromkeys(("sort", "topk", "argsort", "argmax", "argmin"), "numerics.orders"),
    **dict.fromkeys(("full", "full_like", "ones", "zeros", "arange"), "numerics.edges"),
    **dict.fromkeys(("clone", "contiguous", "assign", "copy"), "indexing.moves"),
    **dict.fromkeys(("dropout",), "random.dropout"),
}
"""By operator the grid that compares it, or the table where there is no grid."""

OF_STEPS = ("Qwen2", "Llama", "DPO")
"""The recordings that chapter 17 replays."""

HEAD = """# Operators

Which operators the training of language models calls, and which check compares each with a formula. One step was recorded,
forward, backward and optimizer, of a tiny Llama, Qwen2 and Qwen2-MoE of PaddleNLP, of LoRA and of DPO, on a CPU. A *grid*
combines types, layouts, shapes, values and attributes; *as called* means that chapter 17 makes the call
again on other numbers, in each type, and compares value and gradient (`operators.values`, `operators.gradients`). An operator
with neither is not covered.

Made by `tools/operator_census.py`.

| operator | calls | recorded in | first called by | grid or table | as called |
|---|---|---|---|---|---|
"""


def main(arguments: list[str]) -> None:
    """Write the page, or compare the checks that it names with this table."""
    if arguments == ["--check"]:
        wrong = list(stale(PAGE.read_text(encoding="utf-8")))
        print("\n".join(wrong))
        sys.exit(1 if wrong else 0)
    PAGE.write_text(page(recorded()), encoding="utf-8")


def page(recordings: Mapping[str, Recording]) -> str:
    """The page of these recordings, by name; the operators that most steps call first."""
    found: dict[str, dict[str, Any]] = {}
    for name, recording in recordings.items():
        for call in recording.calls:
            entry = found.setdefault(call.operator, {"calls": 0, "in": {}, "by": _place(call.caller)})
            entry["calls"] += call.count
            entry["in"][name] = None
    rows = sorted(found.items(), key=lambda item: (-len(item[1]["in"]), -item[1]["calls"], item[0]))
    lines = [
        f"| `{operator}` | {each['calls']} | {', '.join(each['in'])} | `{each['by']}` | {_cover(operator)} | "
        f"{'yes' if set(each['in']) & set(OF_STEPS) else 'no'} |"
        for operator, each in rows
    ]
    none = [operator for operator, each in rows if operator not in COVERED and not set(each["in"]) & set(OF_STEPS)]
    rest = [
        "## Not covered",
        "",
        f"Compared with no formula by itself: {', '.join(f'`{each}`' for each in none) or 'none'}.",
        "Those of the mixture of experts are compared as a whole layer, forward and backward, in chapter 14.",
    ]
    return HEAD + "\n".join([*lines, "", *rest, ""])


def stale(text: str) -> Iterator[str]:
    """What is wrong in a page: a row whose grid is not that of COVERED."""
    for operator, cover in re.findall(r"^\| `(\w+)` \|(?:[^|]*\|){3} ([^|]*) \|", text, re.MULTILINE):
        if cover != _cover(operator):
            yield f"{PAGE.name}: {operator} has {cover!r}, the table {_cover(operator)!r}; run tools/operator_census.py"


def recorded() -> dict[str, Recording]:
    """By name the second training step of each model."""
    from xpulab.operators import steps
    from xpulab.operators.recorder import record
    from xpulab.release.experts.paddlenlp_moe import cumsum_of_one_type

    found = dict(steps.recordings(2, 0))
    for name, make in {"Qwen2-MoE": _experts, "LoRA": _lora}.items():
        step = _step(make())
        with cumsum_of_one_type():  # PaddleNLP's gate adds types that Paddle 3.3 does not add
            step()
            found[name] = record(step)
    return found


def _experts() -> Any:
    import paddle
    from paddlenlp.transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

    paddle.seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 32}
    return Qwen2MoeForCausalLM(Qwen2MoeConfig(**sizes, **experts, vocab_size=512, num_key_value_heads=2, norm_topk_prob=True))


def _lora() -> Any:
    from paddlenlp.peft import LoRAConfig, LoRAModel

    from xpulab.chapters.shared.models import new_model

    model = LoRAModel(new_model("tiny-qwen2", 0), LoRAConfig(target_modules=[".*q_proj", ".*v_proj"], r=4, lora_alpha=8))
    model.mark_only_lora_as_trainable()
    return model


def _step(network: Any) -> Callable[[], None]:
    """A function that takes one step of AdamW."""
    import numpy as np
    import paddle

    ids = paddle.to_tensor(np.random.default_rng(0).integers(0, 500, (2, 7)))
    trained = [each for each in network.parameters() if not each.stop_gradient]
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=trained, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))

    def step() -> None:
        loss = network(input_ids=ids, labels=ids, attention_mask=paddle.ones_like(ids))[0]
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()

    return step


def _cover(operator: str) -> str:
    names = COVERED.get(operator, "")
    return ", ".join(f"`{name}`" for name in names.split(", ")) if names else "none"


def _place(caller: str) -> str:
    """The file of a caller, from the package on."""
    return re.sub(r"^.*/(?=paddlenlp/|xpulab/|tools/)", "", caller.rpartition(":")[0])


if __name__ == "__main__":
    main(sys.argv[1:])
