"""What is sent to others holds no secret, and nothing else is lost."""

from __future__ import annotations

import json

import pytest

from xpulab import files
from xpulab.fleet import redact
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
        *(
            (stays, stays)
            for stays in (
                "float32, 12:30, a@b, https://www.paddlepaddle.org.cn/packages/stable/xpu-p800/",
                "/opt/conda/bin/python /data/models/home/weights.bin",
                "the token of a sequence, tokens per second, author",
                "iVBORw0KGgoAAAANSUhEUgAAAl0AAAE8CAYAAAD6wgRJ",
            )
        ),
    ],
)
def test_what_looks_like_a_secret_is_removed_wherever_it_stands_and_other_text_stays(text, expected):
    redacted, removed = NOBODY.redact(text)
    assert redacted == expected and (removed == {}) is (redacted == text)


LIWEI = Redactor.of({"HOME": "/data1/liwei"}, account="liwei")
ZHANG = Redactor.of({"HOME": "/ssd2/people/zhang3", "USER": "root"})
TWO = Redactor.of({"A_TOKEN": "secret", "B_TOKEN": "secret-and-more"})
PASSWORD = Redactor.of({"MY_PASSWORD": "a&b<c>'d\""})
USER = "<removed: user>"


@pytest.mark.parametrize(
    ("redactor", "text", "expected"),
    [
        (LIWEI, "/data1/liwei/run", f"/data1/{USER}/run"),
        (LIWEI, "host of liwei: liwei@node7", f"host of {USER}: {USER}@node7"),
        (LIWEI, "liweiyang, my_liwei", "liweiyang, my_liwei"),
        (LIWEI, "/scratch/liwei", f"/scratch/{USER}"),
        (ZHANG, "/ssd2/people/zhang3/model zhang3", f"/ssd2/people/{USER}/model {USER}"),
        (Redactor.of({"HOME": "/root", "USER": "root"}), "/root/x, the root rank", "/root/x, the root rank"),
        (TWO, "secret-and-more secret", "<removed: B_TOKEN> <removed: A_TOKEN>"),
        (Redactor.of({"USE_TOKEN": "1"}), "1 of 10 rows", "1 of 10 rows"),
        (Redactor.of({"AUTH_MODE": "default"}), "the default level", "the default level"),
        (Redactor.of({"AUTH_MODE": "enabled"}), "the enabled level", "the enabled level"),
        *(  # as a page, a URL and a text spell it
            (PASSWORD, written, "<removed: MY_PASSWORD>")
            for written in ("a&amp;b&lt;c&gt;&#39;d&#34;", "a%26b%3Cc%3E%27d%22", "a&b<c>'d\"")
        ),
    ],
)
def test_users_and_secret_variables_are_removed_whole_and_nothing_beside_them(redactor, text, expected):
    assert redactor.redact(text)[0] == expected


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


def test_pictures_stay_lines_of_json_stay_lines_and_what_was_cut_off_is_text():
    picture = {"image/png": "AKIA" + "A" * 16}
    assert json.loads(NOBODY.redact_file("x.ipynb", json.dumps(picture))[0]) == picture
    lines = '{"a": "/home/li"}\n{"a": "x"}\n'
    assert NOBODY.redact_file("soak.jsonl", lines)[0] == '{"a": "/home/<removed: user>"}\n{"a": "x"}\n'
    assert NOBODY.redact_file("result.json", '{"a": "/home/li/x')[0] == '{"a": "/home/<removed: user>/x'


def test_a_user_who_has_only_a_number_is_no_error(monkeypatch):
    def unknown(number):
        raise KeyError(number)

    monkeypatch.setattr(redact.pwd, "getpwuid", unknown)
    assert redact.of_this_process().redact("hf_" + "a" * 30)[0] == "<removed: token>"


@pytest.mark.parametrize("path", sorted(files.NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_nothing_that_a_notebook_shows_is_taken_for_a_secret(path):
    redactor = Redactor.of({"USER": "liwei", "HOME": "/data1/liwei", "HF_TOKEN": "0123456789abcdef"})
    text = path.read_text(encoding="utf-8")
    redacted, removed = redactor.redact_file(path.name, text)
    assert removed == {} and json.loads(redacted) == json.loads(text)
