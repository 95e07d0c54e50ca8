"""Of fifty generated nodes exactly those with a planted defect are named, each with its kind."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from tests.fleet.compare.made_up import card, check, measurement, measuring, notebook, result, row
from tools.benchmarks.many_nodes import make_fleet, named
from xpulab import cli

SOURCE = result(
    notebook(check(), check("demo.table", rows=[row("a"), row("b")]), check("demo.more")),
    notebook(measuring(measurement("rate", 10.0), measurement("loss", 3.0, 2.0, case="losses")), name="01_rates"),
    card_facts=[card(0), card(1)],
)


def test_the_planted_nodes_are_named_and_no_healthy_one_is(tmp_path):
    expected = make_fleet(SOURCE, tmp_path, nodes=50, seed=7)
    done = CliRunner().invoke(cli.app, ["compare", str(tmp_path), "--json"])
    assert done.exit_code == 1, done.output
    assert len(expected) == 10 and named(json.loads(done.stdout)) == expected
