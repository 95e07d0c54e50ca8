"""Proofs of known defects: for each a small computation whose value says whether this wheel, driver and card have it.

Offered: DEFECTS, those of data/known_issues.yaml that need no chapter, and PAST, those of earlier releases, which must not come
back. Each proof is a function without arguments that returns True where the defect is there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.shared import index_defects, index_grids
from xpulab.chapters.shared.missing_kernels import lacked
from xpulab.chapters.shared.operator_tester import strides
from xpulab.checks.grid import Case
from xpulab.checks.table import Table

Where = Literal["here", "together", "alone"]

_save: Any = paddle.save
_load: Any = paddle.load
"""Their argument safetensors is not declared for type checkers."""


@dataclass(frozen=True)
class Defect:
    """One defect and its proof.

    name: its id in data/known_issues.yaml, or the name of a past defect.
    present: whether it is there. Raises CannotTry where this cannot be found out.
    where: "here" the proof is harmless; "together" it reads or writes beside a tensor, so it runs in another process; "alone"
        it may end its process.
    """

    name: str
    present: Callable[[], bool]
    where: Where = "here"


@dataclass(frozen=True)
class Past:
    """A defect of earlier releases. versions: of Paddle, as a specifier. symptom: a sentence. source: where it was seen."""

    defect: Defect
    versions: str
    symptom: str
    source: str


class CannotTry(Exception):
    """The proof cannot run on this device; the text gives the reason."""


def _gives(proof: index_defects.Proof) -> Callable[[], bool]:
    """The plain form of the proof gives something else than numpy."""

    def present() -> bool:
        found = index_defects.outcome(proof, proof.plain)
        reasons = (lacked(kernel, "float32") for kernel in ("gather_nd", "gather", "index_put"))
        if isinstance(found, str) and (reason := next(filter(None, reasons), "")):
            raise CannotTry(reason)
        return not (isinstance(found, np.ndarray) and np.array_equal(found, proof.expected()))

    return present


def _differs(case: Case) -> Callable[[], bool]:
    """What the case of a grid of indices computes is not what numpy computes."""

    def present() -> bool:
        rows = Table("passport")
        run, add_row = index_grids.RUN
        add_row(rows, case, run([case])[0])
        (row,) = rows.record("", 0.0).rows
        if row.outcome == "skipped":
            raise CannotTry(row.reason)
        return row.outcome != "passed"

    return present


def _accepts(call: Callable[[paddle.Tensor, paddle.Tensor, paddle.Tensor], Any], column: int, flag: int) -> Callable[[], bool]:
    """A position out of range is not refused; where it is, there are still elements of the same tensor."""

    def present() -> bool:
        x = paddle.arange(24, dtype="float32").reshape([4, 6])
        row = paddle.to_tensor([0 if column > 0 else 1])
        try:
            with strides(flag):
                call(x, row, paddle.to_tensor([column]))
        except (IndexError, ValueError, RuntimeError, OSError):
            return False
        return True

    return present


def _put(x: paddle.Tensor, row: paddle.Tensor, column: paddle.Tensor) -> None:
    x[row, column] = 5.0


def _index_put(x: paddle.Tensor, row: paddle.Tensor, column: paddle.Tensor) -> paddle.Tensor:
    return paddle.index_put(x, (row, column), x[0, :1])


def _mean_counts_what_is_ignored() -> bool:
    scores, labels = paddle.to_tensor([[1.0, 2.0], [0.0, 3.0], [4.0, 0.0]]), paddle.to_tensor([0, 1, -100])
    found = float(F.cross_entropy(scores, labels, ignore_index=-100))
    return abs(found - float(np.log(1 + np.exp([1.0, -3.0])).mean())) > 1e-5


def _complex_is_not_saved() -> bool:
    with tempfile.TemporaryDirectory(prefix="xpulab-") as folder:
        try:
            _save({"x": paddle.ones([2]).astype("complex128")}, f"{folder}/x.safetensors", safetensors=True)
        except KeyError:
            return True
        return False


def _nested_is_pickled() -> bool:
    with tempfile.TemporaryDirectory(prefix="xpulab-") as folder:
        path = Path(folder) / "x.safetensors"
        _save({"x": paddle.ones([2]), "more": {"y": paddle.ones([2])}}, str(path), safetensors=True)
        return path.read_bytes()[:2] == b"\x80\x04"  # how a pickle begins


def _empty_is_not_loaded() -> bool:
    with tempfile.TemporaryDirectory(prefix="xpulab-") as folder:
        path = f"{folder}/x.safetensors"
        _save({"x": paddle.zeros([0, 4])}, path, safetensors=True)
        try:
            return _load(path, safetensors=True)["x"].shape != [0, 4]
        except Exception:
            return True


def _proofs_of_indexing() -> list[Defect]:
    by_name: dict[str, tuple[str, Where]] = {
        "read-new-axis-and-tensor": ("a new axis and a tensor", "together"),
        "lost-write-rows-by-a-tensor-and-a-slice": ("without stride kernels, rows by a tensor, and a slice", "together"),
        "gradient-through-a-view": ("gradient, written through a view", "here"),
        "write-view-columns-rows-by-a-tensor": ("columns, rows by a tensor", "alone"),
        "backwards-read-by-a-tensor": ("a tensor beside a slice that goes backwards", "alone"),
        "gradient-type-by-a-tensor-bfloat16": ("gradient, rows set in bfloat16", "alone"),
    }
    proofs = index_defects.SAFE | index_defects.UNSAFE
    return [Defect(name, _gives(proofs[case]), where) for name, (case, where) in by_name.items()]


def _proofs_of_grids() -> list[Defect]:
    """The known issues of the grids of indices, each by the case that always shows it."""
    reading, writing = index_grids.reading(), index_grids.writing("cpu")
    cases = {
        "read-view-all-and-a-tensor": reading.case(index="all, tensor", layout="columns"),
        "write-nothing-selected": writing.case(index="empty tensor", value="number"),
        "write-number-by-mask-of-third-axis": writing.case(index="all, all, mask", shape="(3, 4, 5)", value="number"),
        "write-large-number-to-int32": writing.case(value="a large number", dtype="int32"),
        "write-to-a-number": writing.case(index="everything", shape="()"),
        "gradient-set-under-a-mask": writing.case(index="mask", value="0-d", gradient="of both"),
    }
    return [Defect(name, _differs(case), "together") for name, case in cases.items()]


def _proofs_of_ranges() -> list[Defect]:
    return [
        Defect("out-of-range-read-by-tensors", _accepts(lambda x, row, column: x[row, column], 9, 1)),
        Defect("out-of-range-read-by-tensors-negative", _accepts(lambda x, row, column: x[row, column], -9, 1)),
        Defect("out-of-range-write-1", _accepts(_put, 9, 1)),
        Defect("out-of-range-write-0", _accepts(_put, 9, 0)),
        Defect("out-of-range-index-put-1", _accepts(_index_put, 9, 1)),
        Defect("out-of-range-index-put-0", _accepts(_index_put, 9, 0)),
    ]


DEFECTS: tuple[Defect, ...] = (
    *_proofs_of_grids(),
    *_proofs_of_indexing(),
    *_proofs_of_ranges(),
    Defect("cross-entropy-mean", _mean_counts_what_is_ignored),
    Defect("safetensors-complex128", _complex_is_not_saved),
    Defect("safetensors-nested-writes-a-pickle", _nested_is_pickled),
    Defect("safetensors-empty", _empty_is_not_loaded, "alone"),
)
"""The listed defects that have a proof of their own."""


def _gather_of_columns() -> bool:
    x: Any = paddle.ones([2, 6])
    x.stop_gradient = False
    (paddle.gather(x, paddle.to_tensor([0, 0, 2]), 1) * paddle.to_tensor([1.0, 2.0, 4.0])).sum().backward()
    return x.grad.numpy().tolist() != [[3.0, 0.0, 4.0, 0.0, 0.0, 0.0]] * 2


def _draws_are_inverted() -> bool:
    return bool(paddle.empty([4000]).bernoulli_(0.1).mean() > 0.5)


def _sum_stops_early() -> bool:
    return float(paddle.ones([4096]).astype("bfloat16").sum()) != 4096.0


def _empty_product_is_not_zero() -> bool:
    return bool((paddle.zeros([2, 0]) @ paddle.zeros([0, 3])).numpy().any())


def _maximum_drops_nan() -> bool:
    return not bool(paddle.isnan(paddle.maximum(paddle.to_tensor([float("nan")]), paddle.ones([1])))[0])


def _values_under_a_mask() -> bool:
    return _differs(index_grids.writing("cpu").case(index="mask", gradient="of both"))()


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


_MEASURED = "measured on the CPU with the wheels of these releases"

PAST: tuple[Past, ...] = (
    Past(Defect("gather-of-columns-gradient", _gather_of_columns), "==3.0.0", "every row gets the last row's", _MEASURED),
    Past(Defect("bernoulli-inverted", _draws_are_inverted), "==3.0.0", "bernoulli_(p) is 1 with 1 - p", _MEASURED),
    Past(Defect("bfloat16-sum-stops", _sum_stops_early), "==3.0.0", "a sum of 4096 ones is 1024", _MEASURED),
    Past(Defect("empty-product", _empty_product_is_not_zero), "==3.0.0", "[2, 0] @ [0, 3] is not zero", _MEASURED),
    Past(Defect("maximum-drops-nan", _maximum_drops_nan), "==3.0.0", "maximum(NaN, 1) is 1", _MEASURED),
    Past(Defect("gradient-of-values-under-a-mask", _values_under_a_mask), "==3.1.0", "it is 0 or garbage", _MEASURED),
    Past(Defect("mask-of-two-axes-and-an-index", _mask_of_two_axes), ">=3.0.0,<=3.1.1", "other elements", _MEASURED),
    Past(
        Defect("gradient-of-repeated-rows", _repeated_rows),
        "<0",
        "on an XPU repeated indices count once or at random",
        "PaddlePaddle/Paddle#78772, reported for XPUs; not run on one",
    ),
)
"""Defects of earlier releases, and one that was reported for XPUs only. "<0" is no release: it must be nowhere."""
