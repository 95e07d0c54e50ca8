"""The metrics of a run arrive in Prometheus' node exporter, through its textfile directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from xpulab.files import ROOT

EXPORTER = "prometheus-node-exporter"
PAGE = (ROOT / "docs/schedulers.md").read_text(encoding="utf-8")
ALERTS = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: 'xpulab_run_green{{instance="a",device="xpu"}}', values: '0x600'}}
      - {{series: 'xpulab_run_partial{{instance="a"}}', values: '0x600'}}
      - {{series: 'xpulab_run_green{{instance="b",device="xpu"}}', values: '1x600'}}
      - {{series: 'xpulab_run_partial{{instance="b"}}', values: '0x600'}}
      - {{series: 'xpulab_run_end_time_seconds{{instance="a"}}', values: '0x3000'}}
    promql_expr_test:
      - expr: count by (alertname, instance) (ALERTS{{alertstate="firing"}})
        eval_time: 10m
        exp_samples:
          - {{labels: '{{alertname="XpulabRed", instance="a"}}', value: 1}}
          - {{labels: '{{alertname="XpulabManyRed"}}', value: 1}}
      - expr: count by (instance) (ALERTS{{alertstate="firing", alertname="XpulabStale"}})
        eval_time: 35h
        exp_samples: []
      - expr: count by (instance) (ALERTS{{alertstate="firing", alertname="XpulabStale"}})
        eval_time: 38h
        exp_samples: [{{labels: '{{instance="a"}}', value: 1}}]
"""
METRICS = '# HELP xpulab_run_green 1 when green.\n# TYPE xpulab_run_green gauge\nxpulab_run_green{device="xpu"} 1.0\n'


@contextmanager
def exporter(folder):
    """The samples that a node exporter on loopback answers, as a function."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = ["--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={folder}"]
    command = [EXPORTER, *options, f"--web.listen-address={address}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield lambda: samples(address, process)
        finally:
            process.terminate()


def samples(address, process):
    until = time.monotonic() + 30
    while True:
        assert process.poll() is None and time.monotonic() < until, "the exporter does not answer"
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
            continue
        found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return {sample.name: (sample.labels, sample.value) for sample in found}


def test_alerts_and_dashboard_ask_for_metrics_that_runs_write(operations):
    rules = yaml.safe_load((operations / "prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    panels = json.loads((operations / "grafana/xpulab.json").read_text())["panels"]
    asked = [rule["expr"] for rule in rules] + [target["expr"] for panel in panels for target in panel["targets"]]
    names = {name for expression in asked for name in re.findall(r"\b(?:xpulab|node)_\w+", expression)}
    documented = set(re.findall(r"`((?:xpulab|node)_\w+)`", PAGE))
    assert len(rules) > 3 and len(names) > 6 and names <= documented
    assert all(rule["labels"]["severity"] and rule["annotations"]["description"] for rule in rules)


@pytest.mark.cluster
@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)")
def test_an_alert_fires_for_a_red_node_and_for_a_run_that_is_old(operations, tmp_path):
    (tmp_path / "test.yml").write_text(ALERTS.format(rules=operations / "prometheus/alerts.yml"))
    done = subprocess.run(["promtool", "test", "rules", str(tmp_path / "test.yml")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose rights others could use")
@pytest.mark.parametrize("owner", [0, 65534])
def test_root_writes_with_the_rights_of_the_folders_owner_and_never_where_a_link_leads(site, owner):
    textfiles, source, mine = site.folder / "textfiles", site.folder / "metrics.prom", site.folder / "root's"
    textfiles.mkdir()
    os.chown(textfiles, owner, owner)
    for path in (site.folder, *list(site.folder.parents)[:-2]):
        path.chmod(0o755)
    for path in (source, mine):
        path.write_text(METRICS)
        path.chmod(0o600)

    def publish():
        path = f"{site.bin}:/usr/bin:/bin"
        return site.recipe("publish_metrics.sh", str(source), str(textfiles), PATH=path).returncode

    assert publish() == 0
    (only,) = textfiles.iterdir()
    assert only.read_text() == METRICS
    assert (only.stat().st_uid, only.stat().st_gid, only.stat().st_mode & 0o777) == (owner, owner, 0o644)
    source.write_text("others")
    made = f"{textfiles}/.xpulab.made"
    site.tool("mktemp", f'ln -s "{mine}" {made} || exit; echo {made}')  # as who may write there does in time
    assert publish() != 0 and (mine.read_text(), mine.stat().st_mode & 0o777) == (METRICS, 0o600)


@pytest.mark.cluster
@pytest.mark.skipif(shutil.which(EXPORTER) is None, reason=f"needs {EXPORTER} (Debian: {EXPORTER})")
def test_the_file_is_renamed_into_place_and_the_exporter_shows_the_metrics_and_how_old_they_are(site):
    textfiles, source = site.folder / "textfiles", site.folder / "metrics.prom"
    textfiles.mkdir()
    source.write_text(METRICS)
    inodes = set()
    for _ in range(2):
        done = site.recipe("publish_metrics.sh", str(source), str(textfiles))
        assert done.returncode == 0, done.stderr
        (only,) = textfiles.iterdir()
        inodes.add(only.stat().st_ino)
        assert only.name == "xpulab.prom" and only.read_text() == METRICS
    assert len(inodes) == 2
    os.utime(only, (1_795_317_000, 1_795_317_000))
    with exporter(textfiles) as ask:
        shown = ask()
    assert shown["xpulab_run_green"] == ({"device": "xpu"}, 1.0)
    assert shown["node_textfile_scrape_error"] == ({}, 0.0)
    labels, changed = shown["node_textfile_mtime_seconds"]
    assert (labels["file"].endswith("xpulab.prom"), changed) == (True, 1_795_317_000)
