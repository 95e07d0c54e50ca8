"""Every code of the float8 types against the formula of its bits, and the numbers between the codes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from xpulab.checks.table import Table


@dataclass(frozen=True)
class Float8:
    """A type. bits: of the fraction. bias: of the exponent. has_infinity: else only a fraction of ones is no number."""

    bits: int
    bias: int
    has_infinity: bool

    def decoded(self) -> np.ndarray:
        """The values of the codes 0 to 255, float64; NaN and infinity where a code stands for them."""
        codes = np.arange(256)
        fraction, exponent = codes % 2**self.bits, (codes % 128) >> self.bits
        small, largest = exponent == 0, 2 ** (7 - self.bits) - 1
        values = (fraction / 2**self.bits + ~small) * 2.0 ** (np.maximum(exponent, 1) - self.bias)
        if self.has_infinity:
            values[exponent == largest] = np.where(fraction[exponent == largest] == 0, np.inf, np.nan)
        else:
            values[codes % 128 == 127] = np.nan
        return np.where(codes < 128, values, -values)


TYPES = {"float8_e4m3fn": Float8(3, 7, has_infinity=False), "float8_e5m2": Float8(2, 15, has_infinity=True)}


def add_rows(rows: Table, dtype: str) -> None:
    """Rows of one type: its codes as numbers, numbers as codes, what lies between, beyond and beside them, and a file."""
    exact = TYPES[dtype].decoded()
    finite = np.isfinite(exact)
    codes: Any = paddle.to_tensor(np.arange(256, dtype="uint8"))
    every = codes.view(dtype)
    for wider in ("float32", "bfloat16", "float16"):
        rows.equal(
            f"{dtype}, {wider} of codes", _texts(every.cast(wider).cast("float32")), _texts(exact), control=_texts(-exact)
        )
    known = np.flatnonzero(finite)
    rows.equal(f"{dtype}, codes of float32", _codes(exact[finite], dtype), known, control=np.roll(known, 1))
    positive = np.arange(known[known < 128].max())
    halves = (exact[positive] + exact[positive + 1]) / 2
    even = positive + positive % 2
    rows.equal(f"{dtype}, halves go to the even code", _codes(halves, dtype), even, control=positive + 1)
    above = np.nextafter(halves.astype("float32"), np.float32(np.inf))
    rows.equal(f"{dtype}, above a half", _codes(above, dtype), positive + 1, control=even)
    no_number, ordinary = (_texts(_cast([value], dtype).cast("float32")) for value in (np.nan, 1.0))
    rows.equal(f"{dtype}, NaN", no_number, ["nan"], control=ordinary)
    largest = exact[finite].max()
    over = np.isinf if TYPES[dtype].has_infinity else np.isnan  # what a cast that does not saturate may give instead
    beyond, within = (_cast([value, np.inf], dtype).cast("float32").numpy() for value in (1e30, 1.0))
    beyond, within = (["largest" if v == largest or over(v) else str(v) for v in each] for each in (beyond, within))
    rows.equal(f"{dtype}, beyond the largest", beyond, ["largest", "largest"], control=within)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "codes.safetensors")
        options: dict[str, Any] = {"safetensors": True}
        paddle.save({"codes": every}, path, **options)
        stored = paddle.load(path, **options)["codes"]
    rows.equal(f"{dtype}, a file", stored.view("uint8").numpy(), np.arange(256), control=np.arange(256)[::-1])


def _cast(values: Any, dtype: str) -> Any:
    tensor: Any = paddle.to_tensor(np.asarray(values, "float32"))
    return tensor.cast(dtype)


def _codes(values: Any, dtype: str) -> np.ndarray:
    return _cast(values, dtype).view("uint8").numpy().astype(int)


def _texts(values: Any) -> list[str]:
    """Each number as text, since NaN equals nothing."""
    numbers = values if isinstance(values, np.ndarray) else values.numpy()
    return ["nan" if np.isnan(number) else str(float(number)) for number in numbers]
