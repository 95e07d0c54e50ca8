"""Ask a model the questions of a regression set, and say whether two models differ by more than chance.

    python evaluate.py FOLDER questions.jsonl --save before.json                 the model before a training
    python evaluate.py trained questions.jsonl --compare before.json             and after it

Each line of the file is an object with "question", "rule" and "expected". The rule says how an answer is judged:

    exact       the answer is `expected`
    contains    the answer contains every word of the list `expected`, in upper or lower case
    number      the last number of the answer is `expected`, or differs by at most "within"
    pattern     the regular expression `expected` is found in the answer

It needs Paddle, PaddleNLP and chat_data.py beside it. --device cpu, gpu or xpu; --batch 8; --at_most 48 tokens of an answer.
"""

import argparse
import json
import math
import re
from pathlib import Path

import chat_data
import paddle
from paddlenlp.transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    """Ask, judge and report; returns the share of right answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--at_most", type=int, default=48)
    given = parser.parse_args()
    paddle.set_device(given.device)
    network = AutoModelForCausalLM.from_pretrained(given.model, dtype="float32" if given.device == "cpu" else "bfloat16")
    tokenizer = AutoTokenizer.from_pretrained(given.model, padding_side="left")
    rows = read_questions(given.questions)
    answers = ask(network, tokenizer, rows, given.batch, given.at_most)
    right = [judge(answer, row) for answer, row in zip(answers, rows, strict=True)]
    low, high = interval(sum(right), len(right))
    print(f"right: {sum(right)} of {len(right)}; 95 % interval {low:.0%} to {high:.0%}")
    if given.save:
        content = [
            {**row, "answer": answer, "right": is_right} for row, answer, is_right in zip(rows, answers, right, strict=True)
        ]
        given.save.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    if given.compare:
        before = json.loads(given.compare.read_text(encoding="utf-8"))
        if [row["question"] for row in before] != [row["question"] for row in rows]:
            raise SystemExit(f"{given.compare}: has other questions; compare answers to the same file")
        lost = [row for row, now in zip(before, right, strict=True) if row["right"] and not now]
        gained = sum(now and not row["right"] for row, now in zip(before, right, strict=True))
        print(f"lost {len(lost)}, gained {gained}; by chance with probability {chance(len(lost), gained):.3f}")
        for row in lost:
            print(f"  {row['question']}  {row['answer']}")
    return sum(right) / len(right)


def read_questions(path):
    """The rows of a file of questions. Ends the program at a row with another rule or without a field."""
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    for number, row in enumerate(rows, start=1):
        if not {"question", "rule", "expected"} <= row.keys() or row["rule"] not in ("exact", "contains", "number", "pattern"):
            raise SystemExit(f"{path} row {number}: needs question, expected, and as rule exact, contains, number or pattern")
    return rows


def ask(network, tokenizer, rows, batch=8, at_most=48):
    """The answer to the question of each row, greedy search, a batch at a time."""
    turns = [[chat_data.Turn("user", row["question"], False)] for row in rows]
    prompts = ["".join(text for text, _ in chat_data.pieces(each, tokenizer, is_asked=True)) for each in turns]
    parts = (prompts[start : start + batch] for start in range(0, len(prompts), batch))
    return [answer for part in parts for answer in chat_data.answers(network, tokenizer, part, at_most)]


def judge(answer, row):
    """Whether an answer is right by the rule of its row."""
    rule, expected = row["rule"], row["expected"]
    if rule == "exact":
        return answer.strip() == expected
    if rule == "contains":
        return all(re.search(rf"\b{re.escape(word)}\b", answer, re.IGNORECASE) for word in expected)
    if rule == "number":
        numbers = re.findall(r"-?\d+(?:\.\d+)?", answer.replace(",", ""))
        return bool(numbers) and abs(float(numbers[-1]) - expected) <= row.get("within", 0)
    return re.search(expected, answer) is not None


def interval(right, count, z=1.96):
    """The true share of right answers lies between these two with a probability of 95 % (Wilson 1927)."""
    share, spread = right / count, z * z / count
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    return middle - half, middle + half


def chance(lost, gained):
    """How likely a split of the changed answers that is at least so uneven is when neither model is better (McNemar 1947)."""
    changed, fewer = lost + gained, min(lost, gained)
    return min(1.0, 2 * sum(math.comb(changed, number) for number in range(fewer + 1)) / 2**changed)


@paddle.no_grad()
def perplexity(network, examples, collate, batch=8):
    """exp of the mean loss over all labels of the examples, whatever the batch."""
    network.eval()
    total, count = 0.0, 0
    for start in range(0, len(examples), batch):
        given = collate([examples[index] for index in range(start, min(start + batch, len(examples)))])
        labels = given.pop("labels").flatten()
        logits = network(**given, return_dict=True).logits
        flat = logits.reshape([-1, logits.shape[-1]]).astype("float32")
        total += float(paddle.nn.functional.cross_entropy(flat, labels, ignore_index=-100, reduction="sum"))
        count += int((labels != -100).sum())
    return math.exp(total / count)


if __name__ == "__main__":
    main()
