"""Write docs/arguments.md: which parameters of public functions ever had another value than their default while the suite ran.

    .venv/bin/python tools/argument_census.py run census.jsonl --device cpu            # chapters; then, into the same file,
    .venv/bin/python tools/argument_census.py run census.jsonl release --device cpu    # the release; both on sim, too
    .venv/bin/python tools/argument_census.py write census.jsonl

`run` passes what follows the file to `xpulab run`, and records every call of argument_recorder.py's functions in each process.
`open` prints what is open; with exit code 1 where that is more than MOST_OPEN. A parameter is varied when some call gave it
another value than its default. One that nobody who trains a language model sets is out of scope, for a reason in SCOPE.
Parameters without a default are not counted.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import argument_recorder as recorder

from xpulab import files

PAGE = files.ROOT / "docs" / "arguments.md"

_VISION = (
    "conv* *pool* interpolate upsample grid_sample affine_grid pixel_* channel_shuffle temporal_shift fold unfold zeropad2d "
    "local_response_norm instance_norm batch_norm dropout1d dropout2d dropout3d feature_alpha_dropout maxout prelu"
)
_OTHER_LOSSES = (
    "hsigmoid_loss dice_loss log_loss npair_loss sigmoid_focal_loss margin_* class_center_sample multi_* poisson_nll_loss "
    "gaussian_nll_loss hinge_embedding_loss cosine_embedding_loss triplet_* soft_margin_loss adaptive_log_softmax_with_loss "
    "pairwise_distance bilinear ctc_loss rnnt_loss gumbel_softmax rrelu"
)
_GPU_KERNELS = "flashmask_attention flash_attn_* flash_attention_* sparse_attention moe_permute moe_unpermute rms_norm"

_OTHER_ACTIVATIONS = "celu elu elu_ hard* leaky_relu leaky_relu_ selu *shrink thresholded_relu thresholded_relu_"
_OF_SCRIPTS = (
    "do_* overwrite_output_dir run_name logging_dir log_on_each_node wandb_* pdc_* metrics_output_path output_signal_dir "
    "print_config save_on_each_node past_index"
)
_UNUSED = "flatten_param_grads no_cuda ddp_* lazy_data_processing local_rank"
_OF_OTHER_GENERATORS = (
    "use_fast use_fp16_decoding fast_ptq_sampling decoder_start_token_id synced_gpus paddlenlp_version transformers_version"
)
_DECLARED_ONLY = "expert_*_capacity save_sharding_stage1_model_include_freeze_params"
_OF_AUTO_PARALLEL = (
    "auto_parallel_resume_form_hybrid_parallel sharding_parallel_mesh_dimension enable_auto_parallel to_static "
    "data_parallel_config sequence_parallel_config"
)
GENERATE = "paddlenlp.generation.utils.GenerationMixin"

SCOPE: tuple[tuple[str, str, str], ...] = (
    ("*", "name", "a name in messages"),
    ("*", "verbose", "prints only"),
    *((f"paddle.nn.functional.{each}", "*", "vision") for each in _VISION.split()),
    *((f"paddle.nn.functional.{each}", "*", "of no training of a language model") for each in _OTHER_LOSSES.split()),
    *(
        (f"paddle.nn.functional.{each}", "*", "a kernel that neither a CPU nor a simulated card has")
        for each in _GPU_KERNELS.split()
    ),
    ("paddle.nn.functional.*", "data_format", "vision"),
    *((f"paddle.nn.functional.{each}", "*", "of no training of a language model") for each in _OTHER_ACTIVATIONS.split()),
    ("*", "out", "the same kernel, into a given tensor"),
    ("paddle.nn.functional.*", "inplace", "the same kernel, into a given tensor"),
    ("paddle.optimizer.*", "startup_program", "static graphs"),
    ("paddle.optimizer.*", "no_grad_set", "static graphs"),
    ("paddle.optimizer.Optimizer.backward", "*", "static graphs"),
    ("paddle.optimizer.LBFGS*", "*", "takes a closure, which no trainer gives"),
    ("paddle.optimizer.AdamW", "lr_ratio", "the CPU refuses it; a card's grid of optimizers has it"),
    ("paddle.nn.clip.ClipGradByGlobalNorm", "group_name", "static graphs"),
    ("paddle.nn.functional.softmax_with_cross_entropy", "*", "deprecated since 2.0: cross_entropy takes its place"),
    ("paddle.amp.*", "device_type", "ignored: all devices share one state"),
    ("paddle.io.DataLoader", "feed_list", "static graphs"),
    ("paddle.jit.load", "*_filename", "files of Paddle 1.x"),
    ("paddle.jit.to_static", "build_strategy", "read for CINN alone, which these wheels do not have"),
    ("paddle.distributed.InMemoryDataset*", "*", "parameter servers"),
    ("paddle.distributed.split", "*", "static graphs"),
    ("paddle.distributed.create_nccl_config", "*", "tuning of a GPU's library"),
    ("paddle.distributed.new_group", "nccl_*", "tuning of a GPU's library"),
    ("paddle.distributed.shutdown_process_group", "group", "groups of gloo and of custom devices have no method shutdown"),
    ("paddle.distributed.restart_process_group", "group", "groups of gloo and of custom devices have no method shutdown"),
    ("paddle.distributed.load_merged_state_dict", "aoa_config", "ignored for plain tensors: known issue aoa-plain-tensors"),
    ("paddle.distributed.wait", "use_calc_stream", "neither a CPU nor a custom device has the kernel sync_comm_stream"),
    ("paddle.distributed.fleet.meta_parallel.*", "fuse_matmul_bias", "a kernel of GPUs, refused elsewhere"),
    ("paddle.distributed.fleet.meta_parallel.*", "use_cudagraph", "graphs of GPUs"),
    (
        "paddle.distributed.fleet.meta_parallel.*",
        "return_host_tensor",
        "pinned memory, which a wheel for the CPU does not have",
    ),
    (
        "paddle.distributed.fleet.meta_parallel.ParallelCrossEntropy",
        "*",
        "a kernel that neither a CPU nor a simulated card has",
    ),
    ("paddle.jit.set_*", "*", "prints only"),
    ("paddle.framework.io.save", "pickle_protocol", "deprecated: protocol takes its place"),
    (
        "paddle.nn.functional.scaled_dot_product_attention",
        "backend",
        "read for tensors of automatic parallelism alone, where p2p is attention in a ring, a kernel of a card, in sdpa.py",
    ),
    ("paddle.io.random_split", "generator", "read nowhere: the split is drawn from the state of the process, in dataset.py"),
    *(("paddlenlp.trainer.TrainingArguments", each, "read by scripts, or a name") for each in _OF_SCRIPTS.split()),
    *(("paddlenlp.trainer.TrainingArguments", each, "of another device, or unused") for each in _UNUSED.split()),
    ("paddlenlp.trainer.TrainingArguments", "skip_*_*r*", "measures only"),
    ("paddlenlp.trainer.TrainingArguments", "optim", "needs Triton's kernels"),
    ("paddlenlp.trainer.TrainingArguments", "count_trained_tokens", "needs fleet's groups"),
    ("paddlenlp.trainer.TrainingArguments", "pad_token_id", "needs fleet's groups"),
    ("paddlenlp.trl.SFTConfig", "use_f*", "kernels of a card"),
    ("paddlenlp.trl.SFTConfig", "*ssa*", "kernels of a card"),
    ("paddlenlp.peft.LoRAConfig", "do_qat", "quantization"),
    ("paddlenlp.peft.LoRAConfig", "loraga", "calls .cuda()"),
    ("paddlenlp.peft.LoRAConfig", "merge_weights", "unread"),
    ("paddlenlp.peft.LoRAConfig", "enable_lora_list", "unread"),
    ("paddlenlp.peft.LoRAConfig", "head_dim", "unread"),
    *((f"{GENERATE}.generate", each, "refused, or of encoders and decoders") for each in _OF_OTHER_GENERATORS.split()),
    *(
        ("paddlenlp.trainer.TrainingArguments", each, "read nowhere in PaddleNLP 3.0.0b4 but where it is declared")
        for each in _DECLARED_ONLY.split()
    ),
    *(
        (
            "paddlenlp.trainer.TrainingArguments",
            each,
            "read by automatic parallelism alone, whose class of arguments is not recorded",
        )
        for each in _OF_AUTO_PARALLEL.split()
    ),
    ("paddlenlp.trainer.TrainingArguments", "*16_full_eval", "read only by the error that refuses both, in training_args.py"),
    ("paddlenlp.trainer.TrainingArguments", "expert_tensor_parallel_degree", "all but 1 refused, in training_args.py"),
    (
        "paddlenlp.trl.*Trainer",
        "padding_value",
        "kept by the constructor and read nowhere, in dpo_trainer.py and kto_trainer.py",
    ),
    (
        "paddlenlp.trainer.TrainingArguments",
        "context_parallel_degree",
        "attention in a ring calls flash_attn, a kernel of a card, in ring_flash_attention.py",
    ),
    (
        "paddlenlp.trainer.TrainingArguments",
        "ordered_save_group_size",
        "how many ranks write their files at once, in _ordered_save of trainer.py",
    ),
    ("paddlenlp.trainer.TrainingArguments", "use_async_save", "copies to pinned memory, which only the wheel for GPUs has"),
    (
        "paddlenlp.trl.KTOTrainer",
        "ignore_label",
        "read for a fused head, a kernel of a card, or a sparse one, which no model of PaddleNLP has, in kto_criterion.py",
    ),
    ("paddlenlp.trl.SFTConfig", "eval_packing", "read nowhere in PaddleNLP 3.0.0b4 but where it is declared"),
    ("paddlenlp.trl.DPOCriterion", "use_infohub", "set by the models of pipelines, in their modeling_pp.py, and by no user"),
    ("paddlenlp.data.DataCollatorForSeq2Seq", "model", "calls a method that models with an encoder have alone"),
    ("paddlenlp.data.DataCollatorForLanguageModeling*", "*", "masked models"),
)
"""Patterns of functions and of parameters that are out of scope, and why; the first that matches."""

MOST_OPEN = 0.05
"""The largest share of the parameters in scope that may have had their default only."""

BASE = "paddlenlp.trainer.TrainingArguments"
INHERITED = {f"paddlenlp.trl.{name}": BASE for name in ("SFTConfig", "DPOConfig", "KTOConfig")}
"""Classes that have every field of another one: what they were given counts there."""


@dataclass
class Parameter:
    """A parameter with a default. kinds: of the values that are not the default. reason: why it is out of scope, or ""."""

    function: str
    name: str
    reason: str
    kinds: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """varied, default only, or out of scope."""
        return "varied" if self.kinds else "out of scope" if self.reason else "default only"


def main(arguments: list[str]) -> None:
    """Run, write the page, or print the parameters that are open."""
    match arguments:
        case ["run", file, *rest]:
            sys.exit(run(Path(file).resolve(), rest))
        case ["write", file]:
            PAGE.write_text(page(list(counted(Path(file)))), encoding="utf-8")
        case ["open", file]:
            inside = [each for each in counted(Path(file)) if each.status != "out of scope"]
            left = [each for each in inside if each.status == "default only"]
            print(*(f"{each.function} | {each.name}" for each in left), sep="\n")
            print(f"{len(left)} of {len(inside)}", file=sys.stderr)
            sys.exit(1 if len(left) > MOST_OPEN * len(inside) else 0)
        case _:
            sys.exit(__doc__)


def run(file: Path, arguments: list[str]) -> int:
    """Run notebooks with the recorder in every process; returns the exit code of xpulab run."""
    with tempfile.TemporaryDirectory() as folder:
        here = str(Path(__file__).parent)
        code = f"import sys\nsys.path.append({here!r})\nimport argument_recorder\nargument_recorder.install()\n"
        Path(folder, "sitecustomize.py").write_text(code, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": folder, recorder.FILE: str(file)}
        command = [sys.executable, "-m", "xpulab", "run", *arguments, "--out", str(Path(folder, "run"))]
        return subprocess.run(command, env=environment, timeout=4 * 3600, check=False).returncode


def counted(file: Path) -> Iterator[Parameter]:
    """Every parameter with a default, in the order of MODULES and of the signatures, with what the lines of the file say."""
    kinds: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for line in file.read_text(encoding="utf-8").splitlines():
        function, parameter, kind, is_default = json.loads(line)
        if not is_default:
            kinds[function, parameter][kind] = None
            kinds[INHERITED.get(function, function), parameter][kind] = None
    inherited = {
        each.name for each in recorder.parameters(BASE, importlib.import_module("paddlenlp.trainer").TrainingArguments)
    }
    seen = set()
    for path, names in recorder.MODULES.items():
        for function, _, _, value in recorder.functions(importlib.import_module(path), names):
            for each in recorder.parameters(function, value):
                if each.default is inspect.Parameter.empty or (function, each.name) in seen:
                    continue
                if function in INHERITED and each.name in inherited:
                    continue
                seen.add((function, each.name))
                reason = next(
                    (why for where, what, why in SCOPE if fnmatchcase(function, where) and fnmatchcase(each.name, what)), ""
                )
                yield Parameter(function, each.name, reason, sorted(kinds[function, each.name]))


def module_of(function: str) -> str:
    """The module of MODULES that has this function."""
    return max((path for path in recorder.MODULES if function.startswith(f"{path}.")), key=len)


def page(parameters: list[Parameter]) -> str:
    """The page of these parameters."""
    by_module: dict[str, list[Parameter]] = defaultdict(list)
    for each in parameters:
        by_module[module_of(each.function)].append(each)
    counts = {module: Counter(each.status for each in of_it) for module, of_it in by_module.items()}
    rows = [f"| [{module}](#{module.replace('.', '')}) | {_numbers(each)} |" for module, each in counts.items()]
    rows.append(f"| all | {_numbers(sum(counts.values(), Counter()))} |")
    parts = [HEAD + "\n".join(rows)]
    for module, of_it in by_module.items():
        functions: dict[str, list[Parameter]] = defaultdict(list)
        for each in of_it:
            functions[each.function.removeprefix(f"{module}.")].append(each)
        lines = [f"| `{function}` | {_cells(of_one)} |" for function, of_one in functions.items()]
        reasons = dict.fromkeys(each.reason for each in of_it if each.status == "out of scope")
        head = f"## {module}\n\n| function | varied | default only | out of scope |\n|---|---|---|---|\n"
        parts.append(head + "\n".join(lines) + "".join(f"\n\nOut of scope: {reason}." for reason in reasons))
    return "\n\n".join(parts) + "\n"


def _numbers(counts: Mapping[str, int]) -> str:
    inside = counts["varied"] + counts["default only"]
    share = f"{100 * counts['default only'] / inside:.1f} %" if inside else "-"
    return f"{counts['varied']} | {counts['default only']} | {share} | {counts['out of scope']}"


def _cells(parameters: list[Parameter]) -> str:
    """Three cells: what was varied, with the kinds of its values, what never was, and what need not be."""
    varied = [
        f"`{each.name}`: {', '.join(each.kinds[:4])}{', ...' if len(each.kinds) > 4 else ''}"
        for each in parameters
        if each.kinds
    ]
    rest = [[f"`{each.name}`" for each in parameters if each.status == status] for status in ("default only", "out of scope")]
    return " | ".join(["; ".join(varied), *(", ".join(names) for names in rest)]).replace("\n", " ")


HEAD = """# Arguments that were tried

A fault in an option that no case ever gives is seen by nobody. So `tools/argument_census.py` records, while the chapters and
the release run, each call of the public functions that a training touches, in every kernel and on every rank, and what each
parameter got. **Varied**: a value other than the default, of the kinds named: type, number of axes, a word, 0, below 0.
**Default only**: never anything else, or never called. **Out of scope**: for a reason named below the table. Parameters without
a default are not counted. A value that was given is not yet one that was compared; what compares it is a grid of its notebook.

Recorded at level quick, the chapters on a CPU and in the rehearsal of an XPU, without chapter 19, the release on the CPU and
its notebook of paddle.distributed in the rehearsal, too. A notebook that changed is recorded again alone, into the same file.
The aim is that less than a twentieth of what is in scope has its default only.

| module | varied | default only | share | out of scope |
|---|---|---|---|---|
"""

if __name__ == "__main__":
    main(sys.argv[1:])
