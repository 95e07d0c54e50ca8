"""The catalogue holds together: every capability has a fault, and every fault can be let loose and is another one."""

from __future__ import annotations

import textwrap
from collections import Counter

import pytest

from xpulab.faults import CATALOGUE
from xpulab.harness.plan import make_plans
from xpulab.sim.faults import parse

PLANS = {plan.name: plan for plan in make_plans([], "quick")}
CAPABILITIES = sorted({(name, check.name.split(".", 1)[0]) for name, plan in PLANS.items() for check in plan.checks})


def twice(values):
    return sorted(value for value, count in Counter(values).items() if count > 1)


@pytest.mark.parametrize(("notebook", "capability"), CAPABILITIES, ids=[" ".join(pair) for pair in CAPABILITIES])
def test_each_capability_that_a_notebook_checks_has_a_fault_there(notebook, capability):
    seen = {check for fault in CATALOGUE if fault.notebook == notebook for check in fault.seen_by}
    assert any(check.startswith(f"{capability}.") for check in seen), f"no fault of {notebook} is seen by {capability}.*"


def test_each_notebook_has_several_faults():
    counts = Counter(fault.notebook for fault in CATALOGUE)
    assert {name: counts[name] for name in PLANS if counts[name] < 6} == {}


def test_names_are_unique():
    assert twice(fault.name for fault in CATALOGUE) == []


def test_no_two_faults_are_told_in_the_same_words():
    assert twice(fault.what for fault in CATALOGUE) == []


def test_no_notebook_has_the_same_fault_twice():
    injected = [(fault.notebook, fault.device, textwrap.dedent(fault.breaks).strip(), fault.sim_faults) for fault in CATALOGUE]
    assert twice(injected) == []


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: fault.name)
class TestOf:
    def test_it_breaks_something(self, fault):
        assert fault.breaks.strip() or fault.sim_faults.strip()

    def test_what_it_runs_is_python(self, fault):
        body = textwrap.indent(textwrap.dedent(fault.breaks), "    ")
        compile(f"def fault():\n    pass\n{body}\n", fault.name, "exec")

    def test_what_it_does_to_simulated_cards_is_in_their_grammar(self, fault):
        assert bool(parse(fault.sim_faults)) == bool(fault.sim_faults)
        assert fault.device == "sim" or not fault.sim_faults, "on the CPU there are no cards to break"

    def test_it_must_be_seen_by_checks_that_its_notebook_plans(self, fault):
        assert fault.seen_by and set(fault.seen_by) <= {check.name for check in PLANS[fault.notebook].checks}
