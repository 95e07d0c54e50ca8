"""Pictures of 10_auto_parallel: which rank holds what, what a reshard moves, how two layers are cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared.figures import OF_RANK, arrow, box, diagram, grid_of


def held_by_each_rank(held: Sequence[Mapping[str, np.ndarray]], table: np.ndarray) -> None:
    """For each placement and rank the table, with the squares that the rank holds in its tone.

    held: for each rank its part of the table by placement; nothing is drawn when it is empty.
    """
    if not held:
        return
    rows, columns = table.shape
    step, height = columns + 2, rows + 1.6
    axes = diagram(3 * step, len(held) * height + 1, "A 4 x 6 table under three placements: each rank's part is coloured")
    for rank, parts in enumerate(held):
        y = (len(held) - 1 - rank) * height + 0.4
        axes.text(0.1, y + rows / 2, f"rank {rank}", ha="left", va="center", fontsize=9)
        for column, (name, part) in enumerate(parts.items()):
            tones = np.where(np.isin(table, part), OF_RANK[rank], "plain")
            grid_of(axes, table, 1.9 + column * (step - 0.3), y, tones=tones, label=name if rank == 0 else "")
    plt.show()


def reshards(moved: Sequence[Mapping[str, tuple[np.ndarray, np.ndarray]]]) -> None:
    """For each reshard what each rank holds before and after, with the numbers.

    moved: for each rank the arrays before and after, by the name of the reshard; nothing is drawn when it is empty.
    """
    if not moved:
        return
    titles = {"R to S0": "R to S0: drop the rest", "S0 to R": "S0 to R: all-gather", "P to R": "P to R: all-reduce"}
    axes = diagram(33, 16.6, "Three reshards of a 6 x 3 table between two ranks")
    for column, name in enumerate(moved[0]):
        left = 2.3 + column * 10.4
        axes.text(left + 4.2, 15.6, titles[name], ha="center", va="center", fontsize=9)
        for rank, of_rank in enumerate(moved):
            bottom = 8.0 * (1 - rank) + 0.4
            if column == 0:
                axes.text(0.1, bottom + 3, f"rank {rank}", ha="left", va="center", fontsize=9)
            for side, values in enumerate(of_rank[name]):
                tones = np.full(values.shape, OF_RANK[rank] if name != "P to R" or side == 0 else "third")
                top = bottom + 6 - len(values) if rank == 0 or len(values) == 6 else bottom
                grid_of(axes, values.astype(int) if side or name != "P to R" else values, left + 5.4 * side, top, tones=tones)
            arrow(axes, (left + 3.3, bottom + 3), (left + 5.1, bottom + 3))
            if name != "R to S0":
                arrow(axes, (left + 3.3, 3.4 + 8 * rank), (left + 5.1, 11.4 - 8 * rank), dashed=True)
    plt.show()


def holders_of_each_element(square: Sequence[Mapping[str, np.ndarray]]) -> None:
    """For each pair of placements a 4 x 4 table; the number in a square says which of four ranks hold the element.

    square: for each rank its part of the table by the name of the pair; nothing is drawn when it is empty.
    """
    if not square:
        return
    table = np.arange(1, 17, dtype="float32").reshape(4, 4)
    axes = diagram(21, 5.6, "Ranks that hold an element, on a mesh of [[0, 1], [2, 3]]")
    for column, name in enumerate(square[0]):
        holders = np.vectorize(lambda value, name=name: ",".join(str(r) for r in range(4) if value in square[r][name]))(table)
        tones = np.vectorize(lambda text: OF_RANK[int(text[0])])(holders)
        grid_of(axes, holders, 0.4 + column * 5.2, 0.3, tones=tones, label=name)
    plt.show()


def two_cut_layers(x: np.ndarray, pieces: Sequence[Sequence[np.ndarray]], total: np.ndarray) -> None:
    """How two ranks compute two linear layers: the columns of the first, the rows of the second, and the sum of two summands.

    pieces: for each rank its output, columns, rows and summand; nothing is drawn when it is empty.
    total: what the summands must add up to, [samples, features]; the first number of each is shown.
    """
    if not pieces:
        return
    axes = diagram(40, 19, "A column-parallel and a row-parallel layer: one all-reduce for both")
    box(axes, 0.5, 7.6, 4.6, 2.6, f"x\n{_size(x)}\non both ranks")
    for rank, (_, wide, narrow, summand) in enumerate(pieces):
        y, tone = 11.4 - 9.6 * rank, OF_RANK[rank]
        axes.text(7.2, y + 5.6, f"rank {rank}", ha="left", va="center", fontsize=9)
        _cut_weight(axes, 7.2, y, 6.0, 4.2, rank, tone, by_columns=True)
        axes.text(10.2, y - 0.6, f"wide, Shard(1)\n{_size(wide)} here", ha="center", va="top", fontsize=8)
        box(axes, 16.0, y + 0.9, 4.4, 2.4, f"hidden\n{x.shape[0]} x {wide.shape[1]}", tone)
        _cut_weight(axes, 23.0, y, 4.2, 4.2, rank, tone, by_columns=False)
        axes.text(25.1, y - 0.6, f"narrow, Shard(0)\n{_size(narrow)} here", ha="center", va="top", fontsize=8)
        box(axes, 29.6, y + 0.9, 4.0, 2.4, f"summand\n{summand[0, 0]:.2f} ...", tone)
        arrow(axes, (5.1, 8.9), (7.1, y + 2.1))
        arrow(axes, (13.3, y + 2.1), (15.9, y + 2.1))
        arrow(axes, (20.5, y + 2.1), (22.9, y + 2.1))
        arrow(axes, (27.3, y + 2.1), (29.5, y + 2.1))
        arrow(axes, (33.7, y + 2.1), (34.9, 9.4 if rank == 0 else 8.4))
    box(axes, 35.0, 7.6, 4.5, 2.6, f"sum\n{total[0, 0]:.2f} ...", "third")
    axes.text(37.2, 7.2, "then the bias,\nonce", ha="center", va="top", fontsize=8)
    plt.show()


def who_reads_and_holds_what(
    shape: tuple[int, int], fitted: Sequence[Sequence[Any]], spelled: Callable[[np.ndarray], str]
) -> None:
    """The mesh as squares, with the samples of the first batch that a rank reads, and its columns of a query weight.

    shape: of the mesh, (dp, mp). spelled: a sample as text.
    fitted: for each rank its losses, samples, columns and moments; nothing is drawn when it is empty.
    """
    if not fitted:
        return
    axes = diagram(26, 4.4 * shape[0] + 1.4, "Along dp ranks read different samples, along mp they hold different columns")
    for rank, (_, samples, columns, *_) in enumerate(fitted):
        down, across = divmod(rank, shape[1])
        x, y = 2.6 + across * 11.6, 0.5 + (shape[0] - 1 - down) * 4.4
        box(axes, x, y, 11.0, 4.0)
        axes.text(x + 0.4, y + 3.4, f"rank {rank} reads", ha="left", va="center", fontsize=9)
        for number, sample in enumerate(samples):
            box(axes, x + 0.4, y + 2.1 - number * 1.1, 4.2, 0.9, spelled(sample), OF_RANK[down])
        _cut_weight(axes, x + 7.2, y + 1.2, 2.6, 2.4, across, OF_RANK[2 + across], by_columns=True, parts=shape[1])
        axes.text(x + 8.5, y + 0.6, f"holds {_size(columns)}", ha="center", va="center", fontsize=8)
        if across == 0:
            axes.text(0.2, y + 2.0, f"dp = {down}", ha="left", va="center", fontsize=9)
        if down == 0:
            axes.text(x + 5.5, 0.5 + shape[0] * 4.4, f"mp = {across}", ha="center", va="bottom", fontsize=9)
    plt.show()


def _cut_weight(
    axes: plt.Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    part: int,
    tone: str,
    by_columns: bool,
    parts: int = 2,
) -> None:
    """A weight in parts, of which this rank holds one."""
    for number in range(parts):
        filled = tone if number == part else "plain"
        if by_columns:
            box(axes, x + number * width / parts, y, width / parts, height, "", filled)
        else:
            box(axes, x, y + (parts - 1 - number) * height / parts, width, height / parts, "", filled)


def _size(array: np.ndarray) -> str:
    return " x ".join(map(str, array.shape))
