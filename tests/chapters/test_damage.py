"""Damages of a checkpoint's files, and what loading is said to do with them."""

from __future__ import annotations

import pytest

from xpulab.chapters.checkpoint_damage import damage

GPU = "gpu"
"""A device on which cases run in this process."""


@pytest.fixture
def folder(tmp_path):
    """Two checkpoints of the kind "plain": a file that differs between them, one that does not, one that nobody reads."""
    for step, weights in ((1, b"old weights"), (2, b"new weights")):
        checkpoint = tmp_path / "plain" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "weights").write_bytes(weights)
        (checkpoint / "same").write_bytes(b"as before")
        (checkpoint / "unread").write_bytes(weights)
    return tmp_path


def load(kind, checkpoint):
    if len(data := (checkpoint / "weights").read_bytes()) == 0:
        raise ValueError("weights is empty")
    if len(data) < 11:
        raise ValueError("too short")
    return [data, (checkpoint / "same").read_bytes()]


def reactions(folder, *names):
    return damage.reactions(load, folder, {"plain": list(names)}, GPU)


def test_a_damage_that_changes_what_is_loaded_without_an_error_is_silent(folder):
    assert {how: reactions(folder, "weights")["plain", "weights", how] for how in ("flip", "swap")} == {
        "flip": "SILENT",
        "swap": "SILENT",
    }


def test_an_error_names_the_damaged_file_or_does_not(folder):
    found = reactions(folder, "weights")
    assert [found["plain", "weights", how] for how in ("empty", "truncate", "delete")] == ["names it", "error", "names it"]


def test_a_file_that_is_not_read_has_no_effect(folder):
    assert reactions(folder, "unread")["plain", "unread", "empty"] == "no effect"


def test_the_same_file_of_an_older_checkpoint_is_no_damage(folder):
    assert reactions(folder, "same")["plain", "same", "swap"] == "-"


def test_the_undamaged_checkpoint_is_loaded_too(folder):
    assert reactions(folder, "weights")["plain", "", damage.UNDAMAGED] == "no effect"


def test_a_damage_lasts_as_long_as_its_block(folder):
    checkpoint = folder / "plain" / "checkpoint-2"
    with damage.copy_of(checkpoint) as copy:
        with damage.damaged(folder, ("plain", "weights", "delete"), copy) as differs:
            assert differs
            assert not (copy / "weights").exists()
        assert (copy / "weights").read_bytes() == (checkpoint / "weights").read_bytes()


def test_a_flip_changes_one_bit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(8))
    damage.flip(path, path)
    assert sum(byte.bit_count() for byte in path.read_bytes()) == 1
