"""The comparison of two logs for a terminal."""

from __future__ import annotations

import textwrap

from xpulab.align.compare import DIFFERS, Alignment, Parting
from xpulab.align.explain import EXPLAINS, RELATED, advice

WIDTH = 120

PLACES = {
    "batch": "other batches",
    "learning rate": "another learning rate",
    "forward": "the weights to begin with, or the forward pass",
    "backward": "the backward pass: the loss agrees, the gradients do not",
    "update or forward": "the update of the step before, or the forward pass",
}
"""By place what differs first within a step."""


def format_alignment(alignment: Alignment) -> str:
    """The comparison, for people."""
    a, b, numbers = alignment.a, alignment.b, alignment.numbers
    lines = [f"a  {a.path}", f"b  {b.path}", f"{len(numbers)} steps compared, {numbers[0]} to {numbers[-1]}", ""]
    batches = "the same" if alignment.has_batches else "not compared: no digests in a log"
    lines += _field("batches", batches if alignment.batches_part is None else f"part at step {alignment.batches_part}")
    lines += _field("to the bit", _parting(alignment.bit, "the same at every step"))
    lines += _field("beyond noise", _parting(alignment.beyond, "at no step"))
    lines += _field("noise", alignment.band)
    lines += ["", *_table(alignment), "", *_environment(alignment)]
    lines += [line for note in alignment.notes for line in _wrapped(f"note: {note}", "  ")]
    return "\n".join([*lines, "", f"verdict: {_verdict(alignment)}"])


def _field(name: str, text: str) -> list[str]:
    return _wrapped(f"{name:13}{text}", " " * 13)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _parting(parting: Parting | None, none: str) -> str:
    if parting is None:
        return none
    return f"first at step {parting.step}: {PLACES[parting.place]} ({', '.join(parting.quantities)})"


def _table(alignment: Alignment) -> list[str]:
    lines = [f"{'':13} {'bits':>6} {'beyond':>6} {'step':>7} {'a':>14} {'b':>14} {'difference':>10} {'band':>8}"]
    for row in alignment.quantities:
        first = " ".join(f"{'-' if step is None else step:>6}" for step in (row.first_bit, row.first_beyond))
        values = " ".join(f"{value:>14.8g}" for value in row.values)
        lines.append(f"{row.name:13} {first} {row.step:>7} {values} {row.difference:>10.2g} {row.width:>8.2g}")
    return [*lines, "bits, beyond: the first step that differs so"]


def _environment(alignment: Alignment) -> list[str]:
    found, parting = alignment.environment, alignment.beyond or alignment.bit
    lines = ["what differs between the environments, the likeliest first:"]
    if not found:
        lines = ["nothing recorded differs between the environments"]
    said = {""}
    for difference in found:
        values = ["not recorded" if value is None else value for value in (difference.a, difference.b)]
        lines += _wrapped(f"  {difference.rank:9} {difference.name}: {values[0]} | {values[1]}", " " * 12)
        if difference.rank in (EXPLAINS, RELATED) and difference.says not in said:
            said.add(difference.says)
            lines += _wrapped(f"{' ' * 12}{difference.says} [{difference.source}]", " " * 12)
    if parting is not None and not any(difference.rank == EXPLAINS for difference in found):
        lines += _wrapped(f"  look next: {advice(parting.place)}", "  ")
    return lines


def _verdict(alignment: Alignment) -> str:
    if alignment.beyond is None:
        return alignment.verdict
    return f"{DIFFERS} from step {alignment.beyond.step} on, {PLACES[alignment.beyond.place]}"
