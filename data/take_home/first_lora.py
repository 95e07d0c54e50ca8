"""Teach a pretrained chat model something new with LoRA. Needs Paddle and PaddleNLP 3.0, nothing else.

    python first_lora.py config.json
    python first_lora.py config.json --ask "Who makes the Larkspur 40?"
    python -m paddle.distributed.launch --devices 0,1,2,3,4,5,6,7 first_lora.py config.json

config.json: model (a folder that AutoModelForCausalLM loads), data (JSON lines with "question" and "answer"), output_dir,
steps, batch (rows of a step on each card), learning_rate, rank, first_block (the first block that gets an adapter), dtype
("bfloat16" on XPU and GPU, "float32" on a CPU), device and seed. The adapter and the merged model are written into output_dir;
--ask loads the merged model and answers.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist
from paddlenlp.data import DataCollatorForSeq2Seq
from paddlenlp.peft import LoRAConfig, LoRAModel
from paddlenlp.transformers import AutoModelForCausalLM, AutoTokenizer

LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
"""The linear layers of attention and feed-forward part."""


def chat(tokenizer, question):
    """The prompt of a question: the text that the model reads before it answers."""
    return tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False)


def encode(tokenizer, row):
    """A row as an example for training: its tokens, and for each position the next token as label, or -100."""
    turns = [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["answer"]}]
    prompt = chat(tokenizer, row["question"])
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=False)
    asked = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    answered = tokenizer(text[len(prompt) :].rstrip(), add_special_tokens=False)["input_ids"]  # to its end token
    labels = [-100] * (len(asked) - 1) + answered + [-100]
    return {"input_ids": asked + answered, "attention_mask": [1] * len(labels), "labels": labels}


def loss_of(network, batch):
    """The mean of -ln(probability) over the labels that count, computed in fp32."""
    output = network(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    logits = output[0] if isinstance(output, tuple) else output
    flat, labels = logits.astype("float32").reshape([-1, logits.shape[-1]]), batch["labels"].flatten()
    total = paddle.nn.functional.cross_entropy(flat, labels, ignore_index=-100, reduction="sum")
    return total / (labels != -100).sum()


def add_adapter(network, rank, first_block, dtype):
    """The network with an adapter at each layer of LAYERS, from one block on; only the adapter trains."""
    blocks = "|".join(str(block) for block in range(first_block, network.config.num_hidden_layers))
    targets = [rf".*layers\.({blocks})\..*{layer}.*" for layer in LAYERS]
    adapted = LoRAModel(network, LoRAConfig(target_modules=targets, r=rank, lora_alpha=2 * rank, dtype=dtype))
    adapted.mark_only_lora_as_trainable()
    return adapted


@paddle.no_grad()
def answers(network, tokenizer, questions, at_most):
    """The answer to each question: the most likely token each time, until <|im_end|> or `at_most` tokens."""
    network.eval()
    prompts = [chat(tokenizer, question) for question in questions]
    batch = tokenizer(prompts, padding=True, add_special_tokens=False, return_attention_mask=True, return_tensors="pd")
    end = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    tokens, _ = network.generate(**batch, max_new_tokens=at_most, decode_strategy="greedy_search", **end)
    return [tokenizer.decode(line, skip_special_tokens=True).strip() for line in tokens.tolist()]


def batches(examples, size, steps, seed):
    """For each step `size` examples, in a new random order each time that all were used."""
    chance = np.random.default_rng(seed)
    rounds = -(-steps * size // len(examples))
    order = np.concatenate([chance.permutation(len(examples)) for _ in range(rounds)])
    return [[examples[index] for index in order[step * size : (step + 1) * size]] for step in range(steps)]


def merge(adapted):
    """Add the adapter to the weights; returns the weights of the whole model, without the adapter's."""
    adapted.merge()
    return {name: weight for name, weight in adapted.model.state_dict().items() if "lora_" not in name}


def read_rows(path):
    """The questions and answers of a JSON Lines file."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def train(config):
    # rank 0's newer store server can abort while the process ends, when another rank ends at that moment (Paddle 3.3.1)
    if "FLAGS_tcp_store_using_libuv" in paddle.base.core.globals():  # before 3.3 there is no such flag
        paddle.set_flags({"FLAGS_tcp_store_using_libuv": False})
    paddle.set_device(config["device"])
    paddle.seed(config["seed"])
    cards, card = dist.get_world_size(), dist.get_rank()
    if cards > 1:
        dist.init_parallel_env()
    tokenizer = AutoTokenizer.from_pretrained(config["model"], padding_side="left")
    network = AutoModelForCausalLM.from_pretrained(config["model"], dtype=config["dtype"])
    adapted = add_adapter(network, config["rank"], config["first_block"], config["dtype"])
    learning = [weight for weight in adapted.parameters() if not weight.stop_gradient]
    rates = paddle.optimizer.lr.PolynomialDecay(config["learning_rate"], config["steps"], config["learning_rate"] / 4)
    is_half = config["dtype"] != "float32"
    optimizer = paddle.optimizer.AdamW(rates, parameters=learning, weight_decay=0.0, multi_precision=is_half)
    model = paddle.DataParallel(adapted) if cards > 1 else adapted
    examples = [encode(tokenizer, row) for row in read_rows(config["data"])]
    collate = DataCollatorForSeq2Seq(tokenizer)
    losses = []
    model.train()
    for chosen in batches(examples, cards * config["batch"], config["steps"], config["seed"]):
        loss = loss_of(model, collate(chosen[card::cards]))
        loss.backward()
        optimizer.step()
        rates.step()
        optimizer.clear_grad()
        losses.append(float(loss))
        if card == 0:
            print(f"step {len(losses)} of {config['steps']}: loss {losses[-1]:.4f}", flush=True)
    if card == 0:
        output = Path(config["output_dir"])
        adapted.save_pretrained(str(output / "adapter"))
        adapted.model.save_pretrained(str(output / "merged"), state_dict=merge(adapted), safe_serialization=True)
        tokenizer.save_pretrained(str(output / "merged"))
        (output / "losses.json").write_text(json.dumps(losses), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path, help="config.json")
    parser.add_argument("--ask", metavar="QUESTION", help="answer a question with the merged model, after a training")
    given = parser.parse_args()
    config = json.loads(given.config.read_text(encoding="utf-8"))
    if not given.ask:
        train(config)
        return
    paddle.set_device(config["device"])
    folder = str(Path(config["output_dir"]) / "merged")
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=config["dtype"])
    print(*answers(network, AutoTokenizer.from_pretrained(folder, padding_side="left"), [given.ask], at_most=60))


if __name__ == "__main__":
    main()
