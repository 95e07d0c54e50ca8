"""What is sent to others holds no secret, and nothing else is lost."""

from __future__ import annotations

import html
import json
import random
import string

import pytest

from xpulab import files
from xpulab.fleet import redact
from xpulab.fleet.redact import Redactor

NOBODY = Redactor({})
GONE = "<removed: assignment>"


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
        (
            "DB_PWD=geheim7 SSH_KEY=geheim7, MY_PASS='a b' PWD=/work",
            f"DB_PWD={GONE} SSH_KEY={GONE}, MY_PASS='{GONE}' PWD=/work",
        ),
        ("password: x", f"password: {GONE}"),
        ("aws_secret_access_key = AbC/dEf+1", f"aws_secret_access_key = {GONE}"),
        ("""{'passphrase': "it's me"}""", f"""{{'passphrase': "{GONE}"}}"""),
        ('"token": "abc", "pad_token": "<pad>"', '"token": "<removed: field>", "pad_token": "<pad>"'),
        ("token = 0123456789abcdef", "token = <removed: field>"),
        ("//registry/:_authToken=geheim", f"//registry/:_authToken={GONE}"),
        (f"bce-v3/ALTAK-{'aB3' * 7}/{'0123456789' * 4} end", "<removed: token> end"),
        (
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nabc\n-----END PGP PRIVATE KEY BLOCK-----\nend",
            "<removed: private key>\nend",
        ),
        ("https://me:ge@heim@proxy/x", "https://<removed: credentials>@proxy/x"),
        ("sshpass -p geheim ssh node7", "sshpass -p <removed: argument> ssh node7"),
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
                "token: 5, eos_token='</s>', tokens = 12, forward_pass: 12 ms, a pass: what it means, secret=None",
                'tiktoken==0.12.0rc1, {"tiktoken": "0.12.0rc1"}',
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
    picture = {"image/png": "iVBORw0KGgoAAAAN/AKIA" + "A" * 16}
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


# ------------------------------------------------------------------------------------------------ wherever a secret stands

ALPHABET = string.ascii_letters + string.digits + "+/=_-.!#$%^*~?äß密\\\"'<& "
NAMES = ("DB_PWD", "MY_PASS", "SSH_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_PASSWORD", "SIGNING_KEY", "BASIC_AUTH")
FIELDS = ("password", "token", "api_key", "apiKey", "private-key", "db_pwd", "pass", "clientSecret")


def nested(random_, value, depth=0):
    """JSON in which this value stands somewhere, also within a text that is JSON."""
    if depth == 3:
        return value
    inner = nested(random_, value, depth + 1)
    return random_.choice(
        (
            lambda: {"cells": [1, {"source": inner}], "n": None},
            lambda: [inner, "other"],
            lambda: {"text": json.dumps(inner)},
            lambda: {f"key {value if isinstance(value, str) else 0}": inner},
        )
    )()


@pytest.mark.parametrize("seed", range(60))
def test_a_secret_of_the_environment_is_in_no_file_however_it_is_spelled(seed):
    random_ = random.Random(seed)
    name, secret = random_.choice(NAMES), "".join(random_.choices(ALPHABET, k=random_.randint(8, 40))).strip()
    redactor = Redactor.of({name: secret})
    for spelled in (secret, f"{name}={secret}", f"a {secret}b", html.escape(secret), json.dumps(secret)):
        for file in ("run/x.ipynb", "machine/x.json"):
            redacted, removed = redactor.redact_file(file, json.dumps(nested(random_, spelled)))
            assert removed and secret not in redacted and secret not in json.dumps(json.loads(redacted), ensure_ascii=False)
        for file in ("run/index.html", "run/x.log", "run/result.json"):
            assert secret not in redactor.redact_file(file, f"{{x {spelled}\n")[0]


@pytest.mark.parametrize("seed", range(60))
def test_a_secret_under_a_name_that_says_so_is_in_no_file_also_where_no_variable_holds_it(seed):
    random_ = random.Random(seed)
    secret = "".join(random_.choices(string.ascii_letters + string.digits + "+/_-.!#", k=random_.randint(8, 40))) + "7"
    field, name = random_.choice(FIELDS), random_.choice(NAMES[:-1])
    redacted, removed = NOBODY.redact_file("x.json", json.dumps(nested(random_, {field: secret})))
    assert secret not in redacted and removed["field"] + removed["assignment"] == 1
    json.loads(redacted)
    for text in (f"{name}={secret}", f"export {name}='{secret}'", f"  {name.lower()}: {secret}\n", f'{{"{name}": "{secret}"}}'):
        redacted = NOBODY.redact_file("x.log", text)[0]
        assert secret not in redacted and NOBODY.redact_file("x.log", redacted)[0] == redacted
