"""In place of xpulab.files: data of xpulab's repository, which lies beside the script."""

import json
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"


def data(*parts):
    """The path of a file that came with this script."""
    return DATA.joinpath(*parts)


def load_jsonl(path, fields):
    """The rows of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def load_json(path, schema):
    """The content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))
