"""The chat templates of three families of models, as short Jinja programs that write the same text for plain conversations.

Written from the published formats, without tools and dates. Sources:
Qwen2.5   https://huggingface.co/Qwen/Qwen2.5-7B-Instruct (tokenizer_config.json)
Llama 3   https://www.llama.com/docs/model-cards-and-prompt-formats/meta-llama-3/
Gemma     https://ai.google.dev/gemma/docs/formatting
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Template:
    """text: the Jinja program. begin: the token before everything, or "". end: the token that ends an answer."""

    text: str
    begin: str
    end: str


TEMPLATES = {
    "Qwen2.5": Template(
        "{% for message in messages %}"
        "{% if loop.first and message['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}"
        "{% endif %}"
        "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        "",
        "<|im_end|>",
    ),
    "Llama 3": Template(
        "{{ bos_token }}"
        "{% for message in messages %}"
        "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
        "<|begin_of_text|>",
        "<|eot_id|>",
    ),
    "Gemma": Template(
        "{{ bos_token }}"
        "{% for message in messages %}"
        "{% if message['role'] == 'system' %}{{ raise_exception('a system turn is not supported') }}{% endif %}"
        "{% set role = 'model' if message['role'] == 'assistant' else 'user' %}"
        "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
        "<bos>",
        "<end_of_turn>",
    ),
}
