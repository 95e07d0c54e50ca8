"""What all tests share: tier, order, what one worker runs, and no kernel that waits for a port that another process took."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_SOCKETS = str(Path(__file__).parent / "kernels_on_sockets")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_SOCKETS, os.environ.get("PYTHONPATH"))))


TIERS = ("unit", "integration", "notebooks", "cluster", "real")
"""unit: in this process, or in one short other one. integration: starts processes that last: kernels, ranks, simulated cards,
the command line. notebooks: executes the committed notebooks. cluster: needs a scheduler's programs or formats: Slurm, ssh, the
node exporter, Kubernetes. real: with a pretrained model from the cache. The last two run only when -m asks for them."""

ONE_WORKER = {
    "the run of the whole suite, for which another worker would wait": (
        "tests/notebooks/test_capability_lanes.py::TestLanes",
        "tests/notebooks/test_clean_run.py::TestTheWholeSuite",
        "tests/notebooks/test_clean_run.py::TestSimulatedCards",
    ),
    "ranks across nodes, which one module starts and another must not find": (
        "tests/fleet/across/test_links.py",
        "tests/fleet/across/test_running.py",
    ),
}
"""By reason the modules and classes that run one after another in one of pytest-xdist's workers."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test without a tier is a unit test; the longest tests start first, before them those that wait for a cluster."""
    for item in items:
        if not any(item.get_closest_marker(tier) for tier in TIERS):
            item.add_marker(pytest.mark.unit)
    items.sort(key=lambda item: TIERS.index(tier_of(item)), reverse=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """With --dist loadscope one worker runs a module or a class, or those that ONE_WORKER names together."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling  # only here: pytest-xdist may be switched off

    class OneWorker(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            scope = super()._split_scope(nodeid)
            return next((name for name, scopes in ONE_WORKER.items() if scope in scopes), scope)

    return OneWorker(config, log)


def tier_of(item: pytest.Item) -> str:
    """The tier of a test."""
    return next(tier for tier in TIERS if item.get_closest_marker(tier))
