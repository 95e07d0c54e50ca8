"""Faults of single cards, of clocks, of packages and of known defects."""

from __future__ import annotations

import sys

from xpulab.chapters.shared.fault import MACHINE, fault, kept, paddle


def _is_second_card() -> bool:
    """Whether the card in use is the second one."""
    return paddle.get_device().endswith(":1")


@fault(device="sim", detected_by=("card-vote.step",), smoke=("card-vote.step",), wraps="paddle:Tensor.__matmul__")
def one_card_multiplies_in_bfloat16(product, *factors):
    """The second card rounds the factors of matrix products to bfloat16."""
    return product(*(each.astype("bfloat16").astype(each.dtype) if _is_second_card() else each for each in factors))


@fault(device="sim", detected_by=("card-vote.step",), after="paddle.nn.functional:softmax")
def one_card_has_another_exponential(result, x):
    """Softmax of the second card differs from the others' by one part in a million."""
    return result * (1 + 1e-6) if _is_second_card() else result


@fault(device="sim", detected_by=("card-vote.step",), wraps="paddle.optimizer:AdamW")
def one_card_forgets_weight_decay(adamw, **named):
    """AdamW of the second card computes without weight decay; losses and gradients of the first step are right."""
    return adamw(**named, weight_decay=0.0) if _is_second_card() else adamw(**named)


@fault(device="sim", detected_by=("card-vote.step",), after="paddle.nn.functional:gelu")
def one_card_has_another_gradient(result, x):
    """The gradient of gelu on the second card is that of the identity; values are right everywhere."""
    return result.detach() + (x - x.detach()) if _is_second_card() else result


@fault(device="sim", detected_by=("card-vote.step", "card-vote.repeat"), after="paddle.nn.functional:cross_entropy")
def one_card_does_not_repeat(loss, *given):
    """The second card adds a number of random size to each loss, as a kernel does that reads what it did not write."""
    return loss + 1e-3 * paddle.rand([]) if _is_second_card() else loss


@fault(
    device="sim",
    sim_faults="flip copy kind=d2h card=1 every=7 bit=9",
    detected_by=("card-vote.step",),
    smoke=("card-vote.step",),
)
def one_card_inverts_a_bit_now_and_then() -> None:
    """Every seventh copy from the second card has an inverted bit."""


@fault(device="sim", detected_by=("card-vote.memory",), smoke=("card-vote.memory",), wraps="paddle:set_device")
def set_device_stays_on_the_first_card(set_device, device):
    """paddle.set_device ignores the number of the card, so all cards are the first one and all votes agree."""
    return set_device(str(device).replace(":1", ":0"))


@fault(device="sim", detected_by=("card-vote.memory",), smoke=("card-vote.memory",), after="paddle:to_tensor")
def a_card_answers_for_another(tensor, *given, **named):
    """What is written to the memory of the second card is also written to that of the first."""
    if tensor.dtype == paddle.int32 and tensor.size >= 1 << 18:
        if not _is_second_card():
            kept.append(tensor)
            return
        for other in kept:
            other.set_value(tensor.numpy())


@fault(
    device="sim",
    sim_faults="flip copy kind=h2d card=1 bytes>=1000000 bit=5",
    detected_by=("card-vote.memory",),
    smoke=("card-vote.memory",),
)
def one_card_stores_large_data_wrongly() -> None:
    """A bit of each large copy to the second card is inverted; small ones, and so its step, are right."""


@fault(device="sim", detected_by=("card-vote.memory",), wraps="paddle.device.custom_device:memory_allocated")
def memory_of_the_first_card_for_all(allocated, card=None):
    """The memory statistics of every card are those of the first."""
    return allocated("sim:0")


@fault(device="sim", detected_by=("hardware.identities",), smoke=("hardware.identities",), wraps="xpulab.sim:serial_number")
def one_card_is_listed_twice(serial_number, _card):
    """The vendor's tool shows the serial number of the first card for every card."""
    return serial_number(0)


@fault(device="sim", detected_by=("bandwidth.clock",), wraps="paddle:device.synchronize")
def synchronize_does_not_wait(_real, device=None):
    """paddle.device.synchronize returns at once, so every clock stops too early."""


@fault(device="sim", detected_by=("bandwidth.data-sheet",), wraps="time:perf_counter")
def clock_runs_too_slowly(real):
    """A clock shows a millionth of the time, so that rates are above what the hardware can do."""
    return real() / 1e6


@fault(device="sim", detected_by=("bandwidth.data-sheet",), replaces="xpulab.records.hardware:sheet_of")
def card_far_below_its_data_sheet(_real):
    """A card computes at less than a fifth of the rate that its data sheet promises."""
    from xpulab.records import hardware

    sheet = hardware.Sheet("a card", ("a card",), "as NVIDIA T4", tflops={"float32": 8.1})
    return lambda model: sheet


@fault(detected_by=("passport.defects",), replaces="paddle:maximum")
def past_defect_comes_back(_real):
    """Maximum drops NaN again, as in Paddle 3.0.0, in a release whose list does not have this defect."""
    return paddle.fmax


@fault(detected_by=("passport.defects",), wraps="paddle.nn.functional:embedding")
def repeated_rows_count_once(embedding, tokens, table):
    """An embedding's gradient counts a token that occurs several times once, as users of XPUs reported."""
    first = paddle.to_tensor([token not in tokens.tolist()[:place] for place, token in enumerate(tokens.tolist())])
    rows = embedding(tokens, table)
    return paddle.where(first.unsqueeze(-1), rows, rows.detach())


@fault(detected_by=("passport.defects",), also_on=("sim",), wraps="paddle.nn.functional:cross_entropy")
def listed_defect_is_gone(loss, scores, labels, ignore_index=-100):
    """The mean of cross_entropy counts the labels that are not ignored: the build differs from the release of the list."""
    return loss(scores, labels, ignore_index=ignore_index, reduction="sum") / (labels != ignore_index).sum()


@fault(where="ranks", detected_by=("passport.defects",), wraps="paddle:Tensor.__getitem__")
def views_are_read_through_copies(read, self, index):
    """Reading a view by an index copies it first: defects that the list has are not there in other processes."""
    return read(self.contiguous(), index)


@fault(device="sim", detected_by=("hardware.cards",), smoke=("hardware.cards",), wraps="xpulab.sim:loaded_cards")
def card_hidden_from_paddle(count):
    """The vendor's tool lists one card more than Paddle finds, as when an image sets a variable of visible devices."""
    return count() + 1 if count() else 0


@fault(device="sim", detected_by=("install.run-check",), wraps="paddle.utils:run_check")
def run_check_verifies_the_cpu(_real):
    """paddle.utils.run_check finds no card, verifies the CPU and reports success."""
    return print("PaddlePaddle works well on 1 CPU.\nPaddlePaddle is installed successfully!")


@fault(detected_by=("install.imports",), breaks=MACHINE)
def package_of_the_stack_does_not_fit() -> None:
    """A package of PaddleNLP's stack cannot be imported, because another one has a version that it was not made for."""
    sys.modules["paddlenlp.trl"] = None
