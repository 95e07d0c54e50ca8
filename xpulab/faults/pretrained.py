"""Faults of 01_first_lora that only the pretrained model shows: the tokens of its stand-in are not compared.

tests/notebooks/test_real_model.py tries them; xpulab selftest, which runs on the stand-in, does not.
"""

from __future__ import annotations

from typing import Any

from xpulab.faults.catalogue.first_lora import after_loading_a_tokenizer
from xpulab.faults.fault import fault


@fault("01_first_lora", detected_by=("first-lora.tokens-of-200-texts",))
def one_merge_is_missing() -> None:
    """The tokenizer has lost the rule that joins its most frequent pair of letters."""
    after_loading_a_tokenizer(_without_a_merge)


def _without_a_merge(tokenizer: Any) -> None:
    import json

    from tokenizers import Tokenizer

    content = json.loads(tokenizer._tokenizer.to_str())
    del content["model"]["merges"][0]
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(content))
