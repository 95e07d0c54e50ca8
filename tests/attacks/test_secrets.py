"""No secret of a run's folder, and of who bundles it, is in the bundle, over however many lines and outputs it stands."""

from __future__ import annotations

import json
import random
import zipfile
from collections import Counter

import pytest

from xpulab.fleet.redact import Redactor

pytestmark = pytest.mark.integration

BODY = [f"planted{'Qk3' * 18}{line}" for line in range(4)]
KEY = ["-----BEGIN OPENSSH PRIVATE KEY-----", *BODY, "-----END OPENSSH PRIVATE KEY-----", "after"]
HEX = "0123456789abcdef" * 2
LINES = {  # each with one secret, which holds the word planted
    "environment": "echo planted-sk planted-license planted-sshpass",
    "yaml": "ak = planted" + HEX,
    "log": "PASS: planted7",
    "login": "user=liwei pass=planted",
    "uppercase": "PASS=planted",
    "names": "BCE_SK=planted XPULAB_LICENSE=planted SSHPASS=planted GH_PAT=planted",
    "cookie": "Set-Cookie: session=planted; user=planted",
    "slack": "https://hooks.slack.com/services/T00/B00/planted",
    "signed": "https://bos.example/x?a=1&X-Amz-Signature=planted&b=2",
    "netrc": "machine example.com login me password planted",
    "docker": "docker login -u me -p planted registry",
    "rest": "DB_PASSWORD=one,planted(two)",
    "page": "DB_PASSWORD = &#34;planted&#34;",
    "coloured": 'DB_PASSWORD \x1b[38;5;241m=\x1b[39m \x1b[31m"planted"\x1b[39m',
    "escaped": r'DB_PASSWORD = "a\"planted"',
    "set": "os.environ['WANDB_API_KEY'] = 'planted'",
    "set default": "os.environ.setdefault('WANDB_API_KEY', 'planted')",
    "default": 'os.getenv("AWS_SECRET_ACCESS_KEY", "planted")',
    "indexed": "secrets['api_key'] = 'planted'",
    "pairs": "[('HOME', '/root'), ('AWS_SECRET_ACCESS_KEY', 'planted')]",
    "lines of netrc": "machine api.wandb.ai\n  login user\n  password planted\n",
    "kaggle": '$ cat kaggle.json\n{"username":"bob","key":"planted"}',
    "docker's": f"{{'auths': {{'ghcr.io': {{'auth': 'planted{HEX}=='}}}}}}",
    "kubeconfig": "  user:\n    client-key-data: planted",
    "npmrc": "//registry.example/:_auth=planted",
    "frame": f"                    name  value\n0  AWS_SECRET_ACCESS_KEY  planted{HEX}",
    "frame's page": f"<tr><td>AWS_SECRET_ACCESS_KEY</td>\n  <td>planted{HEX}</td></tr>",
    "manifest": f"- name: WANDB_API_KEY\n  value: planted{HEX}",
    "arrow": f"HF_TOKEN -> planted{HEX}",
    "xml": "<server><password>planted</password><SecretAccessKey>planted</SecretAccessKey></server>",
    "block": "private_key: |\n  planted",
    "wandb": f"!wandb login planted{HEX}",
    "mysql": "!mysql -uroot -pplanted db",
    "refused": f"Incorrect API key provided: planted{HEX}",
    "nvidia": f"nvapi-planted{HEX}",
    "s3a": "s3a://AKIAABCDEFGHIJKLMNOP:planted@bucket/x",
    "curl": "curl -u AKIAABCDEFGHIJKLMNOP:planted https://example.com",
}
USEFUL = (
    "token ids: [101, 2009]; key_proj 0.25, k_proj: Linear(64, 64); loss 3.25 to 0.0115 nats over 100 steps",
    "tokens per second: 12345.678, sk = 128, sq=16777216, pass rate: 0.98, passed: 12, PASS: test_matmul",
    "wandb login first; the key, the value; <token>; API_KEY is set; api key: see the docs; HF_TOKEN    dtype: object",
    "License: Apache-2.0; a cookie: no; key=value, sort(key=len), num_key_value_heads=2, author: paddle",
    "https://www.paddlepaddle.org.cn/documentation/docs/zh/api/index_cn.html?version=3.3&key_points=1",
)
VARIABLES = {"PADDLE_SK": "planted-sk", "XPULAB_LICENSE": "planted-license", "SSHPASS": "planted-sshpass"}


def printed(*texts, name="stdout"):
    return [{"output_type": "stream", "name": name, "text": text} for text in texts]


def cell(outputs, source=("x",)):
    return {"cell_type": "code", "metadata": {}, "execution_count": 1, "source": list(source), "outputs": outputs}


def notebook_of(*cells):
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def bundled(xpulab, tmp_path):
    """bundled(name=text, ...): the texts of these files of a run in its bundle."""
    (tmp_path / "run" / "notebooks").mkdir(parents=True)
    (tmp_path / "run" / "result.json").write_text('{"node": "another"}')

    def bundle(**texts):
        for name, text in texts.items():
            (tmp_path / "run" / "notebooks" / name.replace("_", ".")).write_text(text)
        code, shown = xpulab("bundle", "run", "--out", "x.zip", variables=VARIABLES)
        assert code == 0, shown
        with zipfile.ZipFile(tmp_path / "x.zip") as archive:
            return {name: archive.read(name).decode() for name in archive.namelist()}

    return bundle


def test_a_key_over_several_lines_is_removed_and_what_follows_stays(bundled):
    lines = [f"{line}\n" for line in KEY]
    made = bundled(
        lines_ipynb=notebook_of(cell(printed(lines)), cell([], source=lines)),
        pieces_ipynb=notebook_of(cell(printed(*lines))),
        trace_ipynb=notebook_of(cell([{"output_type": "error", "ename": "E", "evalue": "", "traceback": KEY}])),
        list_json=json.dumps({"argv": ["--password", "planted"], "lines": KEY}),
        plain_log="\n".join(KEY),
    )
    notebooks = {name: text for name, text in made.items() if name.startswith("run/notebooks/")}
    assert len(notebooks) == 5
    for name, text in notebooks.items():
        assert "planted" not in text and "<removed: private key>" in text and "after" in text, name


@pytest.mark.parametrize("kind", LINES)
def test_what_clouds_and_ci_call_a_secret_is_removed_from_every_kind_of_file(bundled, kind):
    lines = LINES[kind]
    split = [f"{line}\n" for line in lines.split("\n")]
    made = bundled(text_log=lines, split_ipynb=notebook_of(cell(printed(split))), whole_json=json.dumps({"text": lines}))
    assert [name for name, text in made.items() if "planted" in text] == []


def test_ordinary_text_stays(bundled):
    made = bundled(text_log="\n".join(USEFUL), lines_ipynb=notebook_of(cell(printed([f"{line}\n" for line in USEFUL]))))
    assert made["run/notebooks/text.log"] == "\n".join(USEFUL)
    assert all(json.dumps(line)[1:-1] in made["run/notebooks/lines.ipynb"] for line in USEFUL)


def test_a_long_text_takes_no_longer_than_it_is_long(bundled):
    parts = ("a.", "-", "a@", "token=", "curl ", "user=", "eyJ-", "password='\\", "---BEGIN ", "pass: ", "ak=")
    made = bundled(**{f"n{at}_log": f"x@y {part * (100_000 // len(part))} @ begin" for at, part in enumerate(parts)})
    assert len(made) == len(parts) + 2


@pytest.mark.parametrize("seed", range(20))
def test_wherever_a_secret_is_cut_into_lines_and_pieces_it_is_not_in_the_bundle(seed):
    from xpulab.fleet.redact import Redactor

    random_ = random.Random(seed)
    text = "before\n" + random_.choice(["\n".join(KEY), "A_PASSWORD=planted", "a planted-of-the\nenvironment b"]) + "\nend"
    redactor = Redactor.of({"MY_SECRET": "planted-of-the\nenvironment\n"})
    cuts = sorted(random_.sample(range(1, len(text)), random_.randint(0, 6)))
    pieces = [text[start:end] for start, end in zip((0, *cuts), (*cuts, len(text)), strict=True)]
    outputs = printed(*(random_.choice((piece, piece.splitlines(keepends=True))) for piece in pieces))
    redacted, removed = redactor.redact_file("x.ipynb", notebook_of(cell(outputs)))
    shown = "".join(json.loads(redacted)["cells"][0]["outputs"][0]["text"])
    assert removed and "planted" not in shown and "environment" not in shown
    assert shown.startswith("before\n") and shown.endswith("\nend")


@pytest.mark.parametrize("user", ["hang", "merge", "smoke", "green", "level"])
def test_a_user_or_a_setting_with_a_word_of_ours_leaves_a_result_as_it_is(user):
    """Names of fields and of checks are ours: without them a bundle could not be read."""
    result = {"level": "smoke", "device": "cpu", "green": True, "checks": [{"name": "hang.slow"}, {"name": "lora.merge"}]}
    text = json.dumps(result, indent=1) + "\n"
    assert Redactor.of({"USER": user, "AUTH_MODE": "device"}).redact_file("result.json", text) == (text, Counter())
