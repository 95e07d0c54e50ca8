"""What is sent to others holds no secret, and nothing else is lost."""

from __future__ import annotations

import pytest

from xpulab.fleet.redact import Redactor

NOBODY = Redactor({})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("token hf_" + "a" * 34, "token <removed: token>"),
        ("ghp_" + "Z9" * 18 + " end", "<removed: token> end"),
        ("https://me:geheim@proxy:8080/x", "https://<removed: credentials>@proxy:8080/x"),
        ("Authorization: Bearer abc.def", "Authorization: <removed: authorization>"),
        ('File "/home/li.wei/train.py", line 3', 'File "/home/<removed: user>/train.py", line 3'),
        ("/Users/anna", "/Users/<removed: user>"),
    ],
)
def test_what_looks_like_a_secret_is_removed_wherever_it_stands(text, expected):
    assert NOBODY.redact(text)[0] == expected


@pytest.mark.parametrize(
    "text",
    [
        "float32, 12:30, a@b, https://www.paddlepaddle.org.cn/packages/stable/xpu-p800/",
        "/opt/conda/bin/python /data/models/home/weights.bin",
        "the token of a sequence, tokens per second, author",
        "iVBORw0KGgoAAAANSUhEUgAAAl0AAAE8CAYAAAD6wgRJ",
    ],
)
def test_other_text_stays(text):
    assert NOBODY.redact(text) == (text, {})


def test_the_values_of_secret_variables_are_removed_and_counted():
    environ = {
        "HF_TOKEN": "correct horse",
        "WANDB_API_KEY": 'quo"te1',
        "https_proxy": "http://10.1.2.3:3128",
        "PATH": "/usr/bin",
    }
    text = 'correct horse, "quo\\"te1", quo"te1, correct horse, http://10.1.2.3:3128, /usr/bin'
    redacted, removed = Redactor.of(environ).redact(text)
    token, key = "<removed: HF_TOKEN>", "<removed: WANDB_API_KEY>"
    assert redacted == f'{token}, "{key}", {key}, {token}, <removed: https_proxy>, /usr/bin'
    assert removed == {"HF_TOKEN": 2, "WANDB_API_KEY": 2, "https_proxy": 1}


def test_a_secret_that_contains_another_one_is_removed_whole():
    redacted, _ = Redactor.of({"A_TOKEN": "secret", "B_TOKEN": "secret-and-more"}).redact("secret-and-more secret")
    assert redacted == "<removed: B_TOKEN> <removed: A_TOKEN>"


def test_a_short_value_is_no_secret():
    assert Redactor.of({"USE_TOKEN": "1"}).redact("1 of 10 rows")[0] == "1 of 10 rows"
