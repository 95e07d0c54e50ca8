"""What is sent to others holds no secret, and nothing else is lost."""

from __future__ import annotations

import json

import pytest

from xpulab import files
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
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nend", "<removed: private key>\nend"),
        ("pip install https://abcdef@index/simple", "pip install https://<removed: credentials>@index/simple"),
        ("python train.py --hf_token s3 --lr 1", "python train.py --hf_token <removed: argument> --lr 1"),
        ("--password=geheim", "--password=<removed: argument>"),
        ("export WANDB_API_KEY='0123' HF_HOME=/x", "export WANDB_API_KEY='<removed: assignment>' HF_HOME=/x"),
        ("write to li.wei@example.com now", "write to <removed: e-mail> now"),
        ("/nfs/home/li/x.py", "/nfs/home/<removed: user>/x.py"),
        ("/users/li/x.py", "/users/<removed: user>/x.py"),
        ('"Authorization: Bearer abc.def", 1', '"Authorization: <removed: authorization>", 1'),
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


# ------------------------------------------------------------------------------------------------- names, proxies, JSON


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data1/liwei/run", "/data1/<removed: user>/run"),
        ("host of liwei: liwei@node7", "host of <removed: user>: <removed: user>@node7"),
        ("liweiyang, my_liwei", "liweiyang, my_liwei"),
        ("/scratch/liwei", "/scratch/<removed: user>"),
    ],
)
def test_the_own_user_is_removed_from_paths_and_as_a_word(text, expected):
    assert Redactor.of({"HOME": "/data1/liwei"}, account="liwei").redact(text)[0] == expected


def test_a_user_whose_name_is_a_word_of_the_suite_is_removed_from_paths_and_addresses_only():
    redactor = Redactor.of({"USER": "adam"}, words={"adam"})
    assert (
        redactor.redact("sft.adam /scratch/adam/x adam@node7")[0] == "sft.adam /scratch/<removed: user>/x <removed: user>@node7"
    )


def test_root_is_no_person():
    assert Redactor.of({"HOME": "/root", "USER": "root"}).redact("/root/x, the root rank")[0] == "/root/x, the root rank"


def test_a_home_that_is_not_below_home_is_removed_although_the_variables_name_another_user():
    redactor = Redactor.of({"HOME": "/ssd2/people/zhang3", "USER": "root"})
    assert redactor.redact("/ssd2/people/zhang3/model zhang3")[0] == "/ssd2/people/<removed: user>/model <removed: user>"


def test_host_user_and_password_of_a_proxy_are_removed_each_for_itself():
    redactor = Redactor.of({"HTTPS_PROXY": "http://liwei7:geheim7@proxy.corp:3128", "no_proxy": "localhost,.intern.corp"})
    text = "cannot connect to proxy.corp:3128 (proxy.corp) as liwei7 with geheim7; a.intern.corp"
    redacted = redactor.redact(text)[0]
    assert not any(word in redacted for word in ("proxy.corp", "liwei7", "geheim7", "intern.corp"))


def test_json_stays_json_whatever_is_removed():
    text = json.dumps({"text": 'Authorization: Bearer abc"\n/home/li\u00e9\n"', "number": 123456.5, "none": None})
    redacted, removed = Redactor.of({"A_TOKEN": "123456"}).redact_file("x.ipynb", text)
    loaded = json.loads(redacted)
    assert (loaded["number"], loaded["none"]) == (123456.5, None)
    assert loaded["text"] == 'Authorization: <removed: authorization>"\n/home/<removed: user>\n"'
    assert removed == {"authorization": 1, "user": 1}


def test_pictures_stay_and_lines_of_json_stay_lines():
    picture = {"image/png": "AKIA" + "A" * 16}
    assert json.loads(NOBODY.redact_file("x.ipynb", json.dumps(picture))[0]) == picture
    lines = '{"a": "/home/li"}\n{"a": "x"}\n'
    assert NOBODY.redact_file("soak.jsonl", lines)[0] == '{"a": "/home/<removed: user>"}\n{"a": "x"}\n'


def test_json_that_was_cut_off_is_redacted_as_text():
    assert NOBODY.redact_file("result.json", '{"a": "/home/li/x')[0] == '{"a": "/home/<removed: user>/x'


def test_a_secret_is_found_as_a_page_or_a_url_spells_it():
    redactor = Redactor.of({"MY_PASSWORD": "a&b<c>'d\""})
    for written in ("a&amp;b&lt;c&gt;&#39;d&#34;", "a%26b%3Cc%3E%27d%22", "a&b<c>'d\""):
        assert redactor.redact(written)[0] == "<removed: MY_PASSWORD>"


@pytest.mark.parametrize("value", ["default", "enabled"])
def test_a_setting_is_no_secret(value):
    assert Redactor.of({"AUTH_MODE": value}).redact(f"the {value} level")[0] == f"the {value} level"


@pytest.mark.parametrize("path", sorted(files.NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_nothing_that_a_notebook_shows_is_taken_for_a_secret(path):
    redactor = Redactor.of({"USER": "liwei", "HOME": "/data1/liwei", "HF_TOKEN": "0123456789abcdef"})
    text = path.read_text(encoding="utf-8")
    redacted, removed = redactor.redact_file(path.name, text)
    assert removed == {} and json.loads(redacted) == json.loads(text)
