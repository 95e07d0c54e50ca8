"""A fault names what it replaces: it fails when there is nothing of this name, and leaves methods what they were."""

from __future__ import annotations

import math
import pickle

import pytest

from tests.faults.test_catalogue import is_own
from xpulab.chapters.shared.fault import calls, fault, kept


class Owner:
    """What faults break here."""

    def plain(self, x):
        return x + 1

    @staticmethod
    def fixed(x):
        return x + 2

    @classmethod
    def of_the_class(cls, x):
        return cls.__name__, x

    limit = 5


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    for name in ("plain", "fixed", "of_the_class", "limit"):
        monkeypatch.setattr(Owner, name, vars(Owner)[name])
    monkeypatch.setattr(math, "tau", math.tau)


def declared(**named):
    return fault("demo.root", **named)


def at(name):
    return f"{Owner.__module__}:Owner.{name}"


def test_wraps_gives_the_original_before_the_arguments_of_the_call():
    @declared(wraps=at("plain"))
    def doubled(real, self, x):
        """Doubled."""
        return 2 * real(self, x)

    doubled.inject()
    assert Owner().plain(3) == 8


def test_after_gives_the_result_before_the_arguments_and_takes_what_is_returned_unless_it_is_none():
    @declared(after=(at("plain"), at("fixed")))
    def of_odd_numbers_negative(result, *given):
        """Of odd numbers negative."""
        return -result if given[-1] % 2 else None

    of_odd_numbers_negative.inject()
    assert [getattr(Owner(), name)(x) for name in ("plain", "fixed") for x in (1, 2)] == [-2, 3, -3, 4]


def test_replaces_gives_the_original_once_and_takes_what_is_returned():
    @declared(replaces=(at("limit"), "math:tau"))
    def larger(value):
        """Larger."""
        return value + 1

    tau = math.tau
    larger.inject()
    assert (Owner.limit, math.tau) == (6, tau + 1)


@pytest.mark.parametrize("form", ["wraps", "after", "replaces"])
@pytest.mark.parametrize("name", [at("absent"), "math:absent", "no_such_module:name", "tests.no_such:name"])
def test_a_name_that_nothing_has_is_an_error_that_holds_the_name(form, name):
    @declared(**{form: name})
    def nothing(real):
        """Nothing."""

    with pytest.raises(LookupError, match=name):
        nothing.inject()


def test_what_it_says_that_it_breaks_must_be_another_thing_afterwards():
    @declared(breaks=at("limit"))
    def forgets():
        """Forgets."""

    with pytest.raises(LookupError, match=r"Owner\.limit.*left it as it was"):
        forgets.inject()


@pytest.mark.parametrize("named", [{}, {"wraps": "math:sqrt", "breaks": "math:tau"}])
def test_a_fault_says_in_one_way_what_it_replaces(named):
    with pytest.raises(ValueError, match="one of wraps, after, replaces, breaks"):

        @declared(**named)
        def unclear():
            """Unclear."""


@pytest.mark.parametrize(
    ("named", "ours"),
    [
        ({"wraps": "xpulab.ranks:run"}, True),
        ({"wraps": ("xpulab.ranks:run", "paddle:matmul")}, False),
        ({"wraps": "xpulab.sim:loaded_cards"}, False),
        ({"breaks": "cells"}, False),
        ({"sim_faults": "flip copy kind=d2h"}, False),
    ],
)
def test_a_fault_of_our_own_code_proves_only_that(named, ours):
    @declared(**named)
    def something(*given):
        """Something."""

    assert is_own(something) is ours


def test_a_fault_travels_with_its_own_memory():
    import cloudpickle

    @declared(wraps=at("plain"))
    def counted(real, self, x):
        """Counted."""
        kept.append(x)
        return next(calls), len(kept)

    for _ in range(2):
        pickle.loads(cloudpickle.dumps(counted.inject))()
        assert [Owner().plain(3), Owner().plain(4)] == [(1, 1), (2, 2)]
    assert (kept, next(calls)) == ([], 1)
