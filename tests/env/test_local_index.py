"""Each set is installed by pip, and by uv where it is on PATH, from local indexes laid out as PyPI's and Paddle's own are."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.env.conftest import Repository
from xpulab.files import ROOT

pytestmark = pytest.mark.environments

PYTHON = "{}.{}.{}".format(*sys.version_info)
COMMON = "PyPI"
INDEXES = {"cpu": COMMON, "gpu": "cu126", "xpu": "xpu-p800"}
"""The index that has the framework of a set."""


class Index(SimpleHTTPRequestHandler):
    """A folder of indexes; of wheels in `stops` half is sent before the connection ends."""

    stops: ClassVar[set[str]] = set()

    def copyfile(self, source, outputfile):
        name = Path(self.path).name
        if name not in self.stops:
            return super().copyfile(source, outputfile)
        outputfile.write(source.read(200))
        self.close_connection = True

    def log_message(self, *_):
        pass


class Served:
    """Indexes at 127.0.0.1. repository: its requirement files name them instead of Paddle's."""

    def __init__(self, folder: Path, repository: Repository, url: str) -> None:
        self.folder, self.repository, self.url = folder, repository, url

    def wheel(self, index: str, name: str, version: str, needs: str = "") -> str:
        """A wheel whose only module is named as the distribution; returns its hash."""
        module, at = name.replace("-", "_"), self.folder / index / name
        at.mkdir(parents=True, exist_ok=True)
        info = f"{module}-{version}.dist-info"
        texts = {
            f"{module}.py": f'"""{"-" * 4000}"""\nversion = "{version}"\n',
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            + (f"Requires-Dist: {needs}\n" if needs else ""),
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{path},,\n" for path in [*texts, f"{info}/RECORD"])
        with zipfile.ZipFile(at / f"{module}-{version}-py3-none-any.whl", "w") as file:
            for path, text in {**texts, f"{info}/RECORD": record}.items():
                file.writestr(path, text)
        return hashlib.sha256((at / f"{module}-{version}-py3-none-any.whl").read_bytes()).hexdigest()

    def make(self, device: str, **changed: str) -> tuple[int, str]:
        """Exit code and standard error of make_venv for a set."""
        named = f"python{'.'.join(PYTHON.split('.')[:2])}"
        self.repository.tool(named, f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        cache = str(self.folder.parent / "cache")
        proxy = {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1", "PIP_CACHE_DIR": cache, "PIP_RETRIES": "0"}
        index = {"PIP_INDEX_URL": f"{self.url}/{COMMON}/", "PIP_CONFIG_FILE": "/dev/null"}
        index |= {"UV_DEFAULT_INDEX": f"{self.url}/{COMMON}/", "UV_CACHE_DIR": cache, "UV_NO_CONFIG": "1"}
        return self.repository.make("--set", device, **{**proxy, **index, **changed})

    def installed(self) -> dict[str, str]:
        site = next(self.repository.venv.glob("lib/python*/site-packages"))
        infos = (path.name.removesuffix(".dist-info").rpartition("-") for path in site.glob("*.dist-info"))
        return {name.replace("_", "-"): version for name, _, version in infos}


@pytest.fixture
def indexes(repository, tmp_path):
    """The indexes of all sets; packages that PyPI has too are older, or newer, on Paddle's."""
    (repository.bin / "uv").unlink()  # the fake one
    folder = tmp_path / "indexes"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Index, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    served = Served(folder, repository, f"http://127.0.0.1:{server.server_port}")
    for device, index in INDEXES.items():
        path = repository.folder / f"env/requirements/{device}.txt"
        path.write_text(path.read_text().replace("https://www.paddlepaddle.org.cn/packages/stable", served.url))
        digest = served.wheel(index, "numpy", {"cpu": "1.26.4", "gpu": "1.20.0", "xpu": "9.9"}[device])
        if device == "cpu":
            repository.write("env/requirements/common.txt", f"numpy==1.26.4 --hash=sha256:{digest}\n")
    repository.write("pyproject.toml", '[build-system]\nrequires = []\nbuild-backend = "build_backend"\nbackend-path = ["."]\n')
    shutil.copy(ROOT / "tests/env/build_backend.py", repository.folder)
    source = (repository.folder / "env/make_venv.py").read_text()
    repository.write("env/make_venv.py", source.replace('{"xpu": ((3, 10),)}', "{}"))  # the Python of the tests will do
    digest = served.wheel(COMMON, "paddlepaddle", "3.3.1", "numpy>=1.21")
    repository.write("env/requirements/cpu.txt", f"paddlepaddle==3.3.1 --hash=sha256:{digest}\n")
    served.wheel(COMMON, "paddlepaddle", "3.4.0", "numpy>=1.21")
    served.wheel(COMMON, "paddlepaddle-gpu", "2.6.2")
    served.wheel("cu126", "paddlepaddle-gpu", "3.3.1", "nvidia-cudnn-cu12==9.5.1.17")
    served.wheel("cu126", "nvidia-cudnn-cu12", "9.5.1.17")
    served.wheel("xpu-p800", "paddlepaddle-xpu", "3.3.0", "numpy>=1.21")
    served.wheel("xpu-p800", "paddlepaddle-xpu", "3.4.0")
    served.wheel("xpu-p800", "paddlepaddle-xpu", "3.3.1.dev20260101")
    yield served
    server.shutdown()
    server.server_close()


def marker(served: Served) -> str:
    return json.loads((served.repository.venv / "xpulab.json").read_text())["framework"]


@pytest.mark.parametrize("installer", ["pip", "uv"])
@pytest.mark.parametrize(
    ("device", "more", "framework"),
    [
        ("cpu", None, "paddlepaddle 3.3.1"),
        ("gpu", None, "paddlepaddle-gpu 3.3.1"),
        ("xpu", "3.3.1", "paddlepaddle-xpu 3.3.1"),
        ("xpu", None, "paddlepaddle-xpu 3.3.0"),
    ],
    ids=["cpu", "gpu", "xpu", "xpu, an index without 3.3.1"],
)
def test_each_set_is_installed_from_its_index_and_says_which_framework_was_taken(indexes, installer, device, more, framework):
    if installer == "uv":
        if not (uv := shutil.which("uv")):
            pytest.skip("uv is not on PATH")
        (indexes.repository.bin / "uv").symlink_to(uv)
    if more:
        indexes.wheel(INDEXES[device], "paddlepaddle-xpu", more)
    code, printed = indexes.make(device)
    assert (code, f"installing with {installer};" in printed) == (0, True), printed
    assert f": {framework}\n" in printed and marker(indexes) == framework
    name, version = framework.split()
    installed = indexes.installed()
    assert (installed[name], installed["numpy"], installed["xpulab"]) == (version, "1.26.4", "0")
    assert ("nvidia-cudnn-cu12" in installed) == (device == "gpu")


def test_an_index_that_is_not_reached_and_a_download_that_ends_early_are_gone_on_with(indexes, monkeypatch):
    code, printed = indexes.make("cpu", PIP_INDEX_URL="http://127.0.0.1:9/simple/")
    assert code == 2 and "127.0.0.1" in printed and "To go on with this step, repeat the command." in printed
    monkeypatch.setattr(Index, "stops", {"paddlepaddle-3.3.1-py3-none-any.whl"})
    code, printed = indexes.make("cpu")
    assert (code, "goes on after: created, updated pip\n" in printed) == (2, True), printed
    monkeypatch.setattr(Index, "stops", set())
    wheel = indexes.folder / f"{COMMON}/numpy/numpy-1.26.4-py3-none-any.whl"
    wheel.rename(indexes.folder / wheel.name)
    code, printed = indexes.make("cpu", PIP_FIND_LINKS=str(indexes.folder))  # a folder of wheels in the place of an index
    assert (code, marker(indexes)) == (0, "paddlepaddle 3.3.1"), printed
    assert "created (" not in printed and indexes.make("cpu") == (0, "")


@pytest.mark.parametrize("name", ["paddlepaddle", "numpy"])
def test_a_file_with_another_hash_than_was_locked_is_not_installed(indexes, name):
    indexes.wheel(COMMON, name, {"paddlepaddle": "3.3.1", "numpy": "1.26.4"}[name], "somebody-elses")
    code, printed = indexes.make("cpu")
    assert code == 2 and "HASHES" in printed and name not in indexes.installed(), printed


def test_the_wheel_of_a_framework_that_two_indexes_serve_is_taken_by_its_hash(indexes):
    digest = indexes.wheel("cu126", "paddlepaddle-gpu", "3.3.1", "nvidia-cudnn-cu12==9.5.1.17")
    path = indexes.repository.folder / "env/requirements/gpu.txt"
    path.write_text(path.read_text().replace("paddlepaddle-gpu==3.3.1", f"paddlepaddle-gpu==3.3.1 --hash=sha256:{digest}"))
    indexes.wheel(COMMON, "paddlepaddle-gpu", "3.3.1", "somebody-elses")
    code, printed = indexes.make("gpu")
    assert (code, indexes.installed()["nvidia-cudnn-cu12"]) == (0, "9.5.1.17"), printed
