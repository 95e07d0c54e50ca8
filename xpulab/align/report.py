"""The comparison of two logs for a terminal."""

from __future__ import annotations

import textwrap

from xpulab.align.compare import PLACES, Alignment, Parting
from xpulab.align.explain import EXPLAINS, RELATED, advice
from xpulab.verdict import RIGHT

WIDTH = 120


def format_alignment(alignment: Alignment) -> str:
    """The comparison, for people. What may explain a difference is printed for one that is wrong or undecided."""
    numbers = alignment.numbers
    lines = [
        f"{name}  {log.path} ({log.format}, {len(log.steps)} steps)" for name, log in (("a", alignment.a), ("b", alignment.b))
    ]
    lines += [f"{len(numbers)} steps compared, {numbers[0]} to {numbers[-1]}", ""]
    batches = "the same" if alignment.has_batches else "not compared: no digests in a log"
    agree = [row.name for row in alignment.quantities if row.first_beyond is None]
    for pattern in alignment.patterns:
        lines += _field("pattern", f"{pattern.says}; within the noise: {', '.join(agree) or 'nothing'}")
        lines += _field("", f"look at: {pattern.look}")
    lines += _field("batches", batches if alignment.batches_part is None else f"part at step {alignment.batches_part}")
    lines += _field("to the bit", _parting(alignment.bit, "the same at every step"))
    lines += _field("beyond noise", _parting(alignment.beyond, "at no step"))
    lines += _field("noise", alignment.band)
    loss = next(row for row in alignment.quantities if row.name == "loss")
    whole = {"of the loss": alignment.size, f"of what it falls by ({alignment.falls_by:.3g})": alignment.falls_by}
    for word, part in (("largest difference", loss.largest), ("band at the last step", alignment.widest)):
        shares = [f"{_share(part / size)} {name}" for name, size in whole.items() if size > 0]
        lines += _field("share", f"{word} of the loss: {part:.2g}, {', '.join(shares) or 'of a loss of 0'}")
    lines += _field("mean", f"relative difference of the losses: {_share(loss.relative)}")
    lines += ["", *_table(alignment), ""]
    if alignment.answer != RIGHT:
        lines += _environment(alignment)
    lines += [line for note in alignment.notes for line in _wrapped(f"note: {note}", "  ")]
    return "\n".join([*lines, "", *_wrapped(f"verdict: {alignment.answer}: {alignment.reason}", " " * 9)])


def _share(share: float) -> str:
    return f"{share:.2%}" if share >= 1e-4 or not share else f"{share:.1e}"


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
    if parting is not None and not alignment.patterns and not any(difference.rank == EXPLAINS for difference in found):
        lines += _wrapped(f"  look next: {advice(parting.place)}", "  ")
    return lines
