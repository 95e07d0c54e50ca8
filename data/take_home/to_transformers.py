"""Write a model that PaddleNLP has trained as Hugging Face's transformers reads it.

    python to_transformers.py trained out                         config.json and tokenizer are those of trained
    python to_transformers.py trained out --original my-model     those of the folder that the training began with

PaddleNLP holds the weight of a linear layer as [inputs, outputs], torch as [outputs, inputs]; some names differ, too. Every
value is kept, to the bit and in its type. Merge an adapter of LoRA first: lora.py does. It needs Paddle and PaddleNLP 3.0.0b4.
"""

import argparse
import json
import shutil
from pathlib import Path

from paddlenlp import transformers
from safetensors.paddle import load_file, save_file

INDEX = "model.safetensors.index.json"
OF_TOKENIZERS = ("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "chat_template*")


def names(config):
    """By the name of a weight in PaddleNLP its name in transformers, and whether it is transposed."""
    model = getattr(transformers, config["architectures"][0])
    mappings = model._get_name_mappings(model.config_class.from_dict(dict(config)))
    return {each.target_name: (each.source_name, each.action == "transpose") for each in mappings}


def renamed(weights, known):
    """The weights of a file, by their names in transformers."""
    if unknown := sorted(weights.keys() - known.keys()):
        raise SystemExit(f"{unknown[0]}: is no weight of this model; an adapter is merged first: lora.py writes merged/")
    found = {}
    for name, weight in weights.items():
        new, is_transposed = known[name]
        found[new] = weight.T.contiguous() if is_transposed else weight
    return found


def write(trained, out, original=None):
    """Write the folder out, which must not exist. original: a folder of transformers, for config.json and the tokenizer."""
    trained, out, others = Path(trained), Path(out), Path(original or trained)
    parts = sorted(trained.glob("model*.safetensors"))
    if not (trained / "config.json").is_file() or not parts:
        raise SystemExit(
            f"{trained}: has no config.json, or no model*.safetensors; name the output_dir of sft.py, or merged/ of lora.py"
        )
    config = json.loads((trained / "config.json").read_text(encoding="utf-8"))
    known = names(config)
    out.mkdir(parents=True)
    where, size = {}, 0
    for part in parts:
        read = load_file(part)
        if config.get("tie_word_embeddings"):
            read.pop("lm_head.weight", None)  # transformers ties it again
        weights = renamed(read, known)
        save_file(weights, out / part.name, metadata={"format": "pt"})
        where.update(dict.fromkeys(weights, part.name))
        size += (out / part.name).stat().st_size
    if len(parts) > 1:
        index = {"metadata": {"total_size": size}, "weight_map": where}
        (out / INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")
    for pattern in ("config.json", "generation_config.json", *OF_TOKENIZERS):
        for path in others.glob(pattern):
            shutil.copyfile(path, out / path.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trained", help="a folder that PaddleNLP wrote")
    parser.add_argument("out", help="a new folder")
    parser.add_argument("--original", help="the folder of transformers that the training began with")
    given = parser.parse_args()
    if Path(given.out).exists():
        raise SystemExit(f"{given.out}: is there already; name a new folder")
    write(given.trained, given.out, given.original)
    print(f"{given.out}: for AutoModelForCausalLM.from_pretrained of transformers")


if __name__ == "__main__":
    main()
