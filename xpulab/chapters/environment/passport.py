"""Which known defects this wheel, driver and card really have, each proved by value, beside what is expected of this release.

PROOFS holds defects of data/known_issues.yaml whose proof is a few harmless lines, and defects of earlier releases, which must
not come back. The chapters prove all others. Not run on a GPU or XPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from packaging.specifiers import SpecifierSet

from xpulab.chapters.shared.device import Device
from xpulab.checks.compare import first_line
from xpulab.checks.table import Table
from xpulab.devices import REHEARSED, judged_as
from xpulab.messages import N_
from xpulab.records import known_issues

PRESENT, ABSENT = "has it", "does not have it"
"""The answers of a proof."""


@dataclass(frozen=True)
class Defect:
    """One defect and its proof.

    name: its id in data/known_issues.yaml, or the name of a past defect. present: whether it is there.
    versions: of a past defect the releases of Paddle that had it, as a specifier; "" for one of the list. "<0" is no release: a
        defect that was reported, and must be nowhere.
    """

    name: str
    present: Callable[[], bool]
    versions: str = ""


@dataclass(frozen=True)
class Entry:
    """One defect of the passport.

    found: PRESENT, ABSENT or the error that its proof ended with. listed: PRESENT or ABSENT, what this release should have.
    """

    name: str
    found: str
    listed: str


def passport(device: Device) -> list[Entry]:
    """Each defect of PROOFS with the answer of its proof."""
    issues = {issue.id: issue for issue in known_issues.load()}
    entries = []
    for defect in PROOFS:
        if defect.versions:
            listed = SpecifierSet(defect.versions).contains(paddle.__version__, prereleases=True)
        else:
            listed = issues[defect.name].applies(device.name)
        entries.append(Entry(defect.name, _answer(defect), PRESENT if listed else ABSENT))
    return entries


def compare(rows: Table, entries: Iterable[Entry], device: str) -> None:
    """Add a row for each entry: what its proof found is what the list says; the control says the opposite.

    A defect that no card was measured for, and that this card does not have, is skipped: nothing can be said about the list.
    """
    judged = judged_as(device)
    for entry in entries:
        if judged in REHEARSED and (entry.found, entry.listed) == (ABSENT, PRESENT):
            rows.skip(entry.name, N_("this {device} does not have it; the list was measured on the CPU", device=judged))
        else:
            rows.equal(entry.name, entry.found, entry.listed, control=ABSENT if entry.listed == PRESENT else PRESENT)


def format_passport(entries: Sequence[Entry]) -> str:
    """A line for each defect, those that are here first."""
    present = sum(entry.found == PRESENT for entry in entries)
    lines = [f"{present} of the {len(entries)} defects that were tried are here"]
    lines += [f"{entry.found:17} {entry.name}" for entry in sorted(entries, key=lambda entry: entry.found != PRESENT)]
    return "\n".join(lines)


def _answer(defect: Defect) -> str:
    try:
        return PRESENT if defect.present() else ABSENT
    except Exception as error:  # a defect of another kind: the row shows it
        return f"its proof raised {type(error).__name__}: {first_line(error)}"


def _mean_counts_what_is_ignored() -> bool:
    scores, labels = paddle.to_tensor([[1.0, 2.0], [0.0, 3.0], [4.0, 0.0]]), paddle.to_tensor([0, 1, -100])
    found = float(F.cross_entropy(scores, labels, ignore_index=-100))
    return abs(found - float(np.log(1 + np.exp([1.0, -3.0])).mean())) > 1e-5


def _position_out_of_range_is_read() -> bool:
    x = paddle.arange(24, dtype="float32").reshape([4, 6])  # column 9 of row 0 is still within the memory of x
    try:
        x[paddle.to_tensor([0]), paddle.to_tensor([9])].numpy()
    except (IndexError, ValueError, RuntimeError, OSError):
        return False
    return True


def _filled_value_gets_no_gradient() -> bool:
    x, value = (paddle.to_tensor(each, stop_gradient=False) for each in ([1.0, 1.0, 1.0, 1.0], 2.0))
    paddle.masked_fill(x, paddle.to_tensor([True, False, True, True]), value).sum().backward()
    found: Any = value.grad
    return found is None or float(found) != 3.0


def _every_row_gets_the_gradient_of_the_last() -> bool:
    x = paddle.ones([2, 3])
    x.stop_gradient = False
    (paddle.gather(x, paddle.to_tensor([0, 2]), 1) * paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    found: Any = x.grad
    return not np.array_equal(found.numpy(), [[1.0, 0.0, 2.0], [3.0, 0.0, 4.0]])


def _mask_of_two_axes() -> bool:
    cube, mask = np.arange(24).reshape(4, 3, 2), np.arange(12).reshape(4, 3) % 5 < 2
    found = paddle.to_tensor(cube)[paddle.to_tensor(mask), 1].numpy()
    return not np.array_equal(found, cube[mask, 1])


def _repeated_rows() -> bool:
    table = paddle.ones([5, 2])
    table.stop_gradient = False
    F.embedding(paddle.to_tensor([3, 1, 3, 3]), table).sum().backward()
    found: Any = table.grad
    return not np.array_equal(found.numpy()[:, 0], [0.0, 1.0, 0.0, 3.0, 0.0])


PROOFS: tuple[Defect, ...] = (
    Defect("cross-entropy-mean", _mean_counts_what_is_ignored),
    Defect("out-of-range-read-by-tensors", _position_out_of_range_is_read),
    Defect("gradient-masked-fill-of-both", _filled_value_gets_no_gradient),
    Defect("gather-of-columns-gradient", _every_row_gets_the_gradient_of_the_last, "==3.0.0"),
    Defect("bernoulli-inverted", lambda: bool(paddle.empty([4000]).bernoulli_(0.1).mean() > 0.5), "==3.0.0"),
    Defect("bfloat16-sum-stops", lambda: float(paddle.ones([4096]).astype("bfloat16").sum()) != 4096.0, "==3.0.0"),
    Defect(
        "maximum-drops-nan", lambda: not np.isnan(float(paddle.maximum(paddle.to_tensor(np.nan), paddle.ones([])))), "==3.0.0"
    ),
    Defect("mask-of-two-axes-and-an-index", _mask_of_two_axes, ">=3.0.0,<=3.1.1"),
    Defect("gradient-of-repeated-rows", _repeated_rows, "<0"),  # PaddlePaddle/Paddle#78772, reported for XPUs; not run on one
)
"""Those with versions were measured on the CPU with the wheels of these releases."""
