"""A fault names what it replaces: it fails when there is nothing of this name, and leaves methods what they were."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest

from xpulab import files
from xpulab.chapters.shared.fault import calls, fault, kept, replace_in_file


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
    return fault(detected_by=("demo.root",), **named)


def at(name):
    return f"{Owner.__module__}:Owner.{name}"


def test_wraps_gives_the_original_before_the_arguments_of_the_call():
    @declared(wraps=at("plain"))
    def doubled(real, self, x):
        """Doubled."""
        return 2 * real(self, x)

    doubled.inject()
    assert Owner().plain(3) == 8


@pytest.mark.parametrize("owner", [Owner, Owner()], ids=["class", "object"])
def test_static_and_class_methods_stay_what_they_are(owner):
    @declared(wraps=at("fixed"))
    def negative(real, x):
        """Negative."""
        return -real(x)

    @declared(wraps=at("of_the_class"))
    def renamed(real, cls, x):
        """Renamed."""
        return real(cls, -x)

    negative.inject()
    renamed.inject()
    assert (owner.fixed(1), owner.of_the_class(2)) == (-3, ("Owner", -2))


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
    ("named", "is_own"),
    [
        ({"wraps": "xpulab.ranks:run"}, True),
        ({"wraps": ("xpulab.ranks:run", "paddle:matmul")}, False),
        ({"wraps": "xpulab.sim:loaded_cards"}, False),
        ({"breaks": "cells"}, False),
        ({"sim_faults": "flip copy kind=d2h"}, False),
    ],
)
def test_a_fault_of_our_own_code_proves_only_that(named, is_own):
    @declared(**named)
    def something(*given):
        """Something."""

    assert something.is_own is is_own


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


def test_a_file_of_the_book_is_read_with_another_text_and_stays_as_it_is(monkeypatch):
    script, other = (files.DATA / "take_home" / name for name in ("sft.py", "dpo.py"))
    stored, of_the_other = script.read_bytes(), other.read_text(encoding="utf-8")
    monkeypatch.setattr(Path, "read_text", Path.read_text)  # restores it
    replace_in_file("data/take_home/sft.py", "def encode", "def another")
    assert "def another" in script.read_text(encoding="utf-8")
    assert other.read_text(encoding="utf-8") == of_the_other
    assert script.read_bytes() == stored


def test_a_text_that_is_not_in_the_file_is_an_error():
    with pytest.raises(LookupError, match=r"sft\.py.*no such text"):
        replace_in_file("data/take_home/sft.py", "no such text", "")
