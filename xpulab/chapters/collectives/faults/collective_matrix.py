"""Faults that the matrix must detect: a collective is wrong for some sizes, values, ranks or repetitions."""

from __future__ import annotations

from xpulab.chapters.shared.fault import calls, dist, fault, kept, np, paddle

SUM = 0
"""paddle.distributed.ReduceOp.SUM."""


@fault(where="ranks", detected_by=("collectives.reductions",), wraps="paddle.distributed.communication.stream:all_reduce")
def odd_sizes_lose_the_last_element(real, tensor, *args, **kwargs):
    """all_reduce leaves the last element of an odd number of elements as it was."""
    last = tensor[-1:].clone() if tensor.size % 2 and tensor.size > 1 else None
    task = real(tensor, *args, **kwargs)
    if last is not None:
        tensor[-1:] = last
    return task


@fault(where="ranks", detected_by=("collectives.reductions",), after="paddle.distributed.communication.stream:all_reduce")
def maximum_of_negative_numbers_is_zero(task, tensor, op=SUM, *args, **kwargs):
    """The maximum over ranks begins with 0, so that of negative numbers is 0."""
    if op == dist.ReduceOp.MAX:
        tensor.set_value(tensor.clip(min=0))


@fault(
    device="sim",
    where="ranks",
    detected_by=("collectives.reductions",),
    wraps="paddle.distributed.communication.stream:all_reduce",
)
def nan_lost_in_a_maximum(real, tensor, op=SUM, *args, **kwargs):
    """all_reduce with MAX drops NaN."""
    if op == dist.ReduceOp.MAX and tensor.is_floating_point():
        tensor.set_value(paddle.nan_to_num(tensor.astype("float32"), nan=-1e30).astype(tensor.dtype))
    return real(tensor, op, *args, **kwargs)


@fault(where="ranks", detected_by=("collectives.reductions",), after="paddle.distributed.communication.stream:all_reduce")
def infinity_becomes_the_largest_number(task, tensor, *args, **kwargs):
    """A sum over ranks saturates: infinity arrives as the largest number of float32."""
    if tensor.dtype == paddle.float32 and bool(paddle.isinf(tensor).any()):
        tensor.set_value(tensor.clip(-3e38, 3e38))


@fault(where="ranks", detected_by=("collectives.reductions", "collectives.algorithms"), wraps="paddle.distributed:reduce")
def long_messages_added_in_part(real, tensor, *args, **kwargs):
    """Beyond 32,768 elements reduce adds the first half only."""
    middle = tensor.size // 2
    own = tensor[middle:].clone() if tensor.size > 32_768 else None
    task = real(tensor, *args, **kwargs)
    if own is not None:
        tensor[middle:] = own
    return task


@fault(where="ranks", detected_by=("collectives.reductions",), wraps="paddle.distributed.communication.stream:reduce")
def reduces_to_the_first_rank(real, tensor, dst=0, *args, group=None, **kwargs):
    """Reduce gives the result to rank 0, whatever the destination is."""
    return real(tensor, dst if group else 0, *args, group=group, **kwargs)


@fault(where="ranks", detected_by=("collectives.moves",), wraps="paddle.distributed:scatter")
def scatter_counts_from_its_source(real, tensor, tensor_list=None, src=0, *args, **kwargs):
    """Scatter gives the first part to its source rank instead of rank 0."""
    parts = tensor_list and [*tensor_list[-src:], *tensor_list[:-src]]
    return real(tensor, parts, src, *args, **kwargs)


@fault(where="ranks", detected_by=("collectives.moves",), wraps="paddle.distributed:broadcast")
def group_counts_as_if_it_had_the_first_ranks(real, tensor, src, group=None, **kwargs):
    """In a group that does not begin with rank 0, broadcast takes the source's number for its place among the first ranks."""
    if group is not None and group.ranks != list(range(group.nranks)):
        src = group.ranks[src % group.nranks]
    return real(tensor, src, group=group, **kwargs)


@fault(where="ranks", detected_by=("collectives.reductions",), after="paddle.distributed.communication.stream:all_reduce")
def crossing_group_mixes_elements(task, tensor, op=SUM, group=None, *args, **kwargs):
    """A sum in a group of ranks of both halves has its first two elements exchanged."""
    if group is not None and group.ranks in ([0, 2], [1, 3]) and tensor.size > 1:
        tensor.set_value(paddle.concat([tensor[1:2], tensor[:1], tensor[2:]]))


@fault(where="ranks", detected_by=("collectives.pairs",), after="paddle.distributed:broadcast")
def one_pair_receives_wrong_values(task, tensor, src, group=None, **kwargs):
    """What rank 1 sends to rank 3 arrives with one element changed."""
    if group is not None and group.ranks == [1, 3] and src == 1 and dist.get_rank() == 3:
        tensor[tensor.size // 2] += 1


@fault(where="ranks", detected_by=("collectives.pairs",), wraps="paddle.distributed:all_reduce")
def one_pair_is_not_connected(real, tensor, *args, group=None, **kwargs):
    """A sum of two ranks that have no link is the value of one of them."""
    own = tensor.clone()
    task = real(tensor, *args, group=group, **kwargs)
    if group is not None and group.ranks == [0, 3]:
        tensor.set_value(own)
    return task


@fault(where="ranks", detected_by=("collectives.algorithms",), wraps="paddle.distributed:all_reduce")
def tree_adds_in_bfloat16(real, tensor, *args, **kwargs):
    """Messages that are small enough for a tree are added with the digits of bfloat16."""
    if tensor.dtype == paddle.float32 and 100 <= tensor.size < 32_768:
        tensor.set_value(tensor.astype("bfloat16").astype("float32"))
    return real(tensor, *args, **kwargs)


@fault(where="ranks", detected_by=("collectives.algorithms",), wraps="paddle.distributed:all_reduce")
def bfloat16_sums_cut_off(real, tensor, *args, **kwargs):
    """A sum in bfloat16 cuts digits off instead of rounding."""
    if tensor.dtype != paddle.bfloat16:
        return real(tensor, *args, **kwargs)
    wide = tensor.astype("float32")
    task = real(wide, *args, **kwargs)
    bits = wide.numpy().view("uint32") & np.uint32(0xFFFF0000)
    tensor.set_value(paddle.to_tensor(bits.view("float32")).astype("bfloat16"))
    return task


@fault(where="ranks", detected_by=("collectives.repeats",), after="paddle.distributed:all_reduce")
def one_sum_in_thirteen_differs(task, tensor, *args, **kwargs):
    """Each thirteenth sum of a long message has another last bit."""
    if tensor.dtype == paddle.float32 and tensor.size > 4096 and next(calls) % 13 == 0:
        tensor.scale_(1 + 2**-22)


@fault(where="ranks", detected_by=("collectives.messages",), wraps="paddle.distributed:batch_isend_irecv")
def second_message_overtakes_the_first(real, batch):
    """Of two messages of one size in a batch, the second one arrives first."""
    for task in real(batch):
        task.wait()
    arrived = [each.tensor for each in batch if each.op == dist.irecv]
    if len(arrived) > 1 and arrived[0].shape == arrived[1].shape:
        first = arrived[0].clone()
        arrived[0].set_value(arrived[1])
        arrived[1].set_value(first)
    return []


@fault(where="ranks", detected_by=("collectives.messages",), wraps="paddle.distributed:batch_isend_irecv")
def last_message_is_lost(real, batch):
    """The last of several messages to one rank never reaches its tensor."""
    for task in real(batch):
        task.wait()
    arrived = [each.tensor for each in batch if each.op == dist.irecv]
    if len(arrived) > 1:
        arrived[-1].fill_(-1.0)
    return []


@fault(where="ranks", detected_by=("collectives.zero-size",), wraps="paddle.distributed.communication.stream:all_reduce")
def nothing_spoils_the_next_sum(real, tensor, *args, **kwargs):
    """After a collective without elements the next sum is wrong."""
    if tensor.size == 0:
        kept.append(tensor)
    task = real(tensor, *args, **kwargs)
    if kept:
        tensor.add_(tensor)
    return task


@fault(where="ranks", detected_by=("collectives.moves",), after="paddle.distributed:all_gather_object")
def objects_in_another_order(_result, found, mine, group=None):
    """all_gather_object returns the objects in the order in which they arrive."""
    found[:] = [*found[1:], found[0]]


@fault(where="ranks", detected_by=("collectives.moves",), wraps="paddle.distributed.communication.stream:all_gather")
def gather_in_place_loses_its_input(real, out, tensor, *args, **kwargs):
    """all_gather into a tensor that contains its input clears the input first."""
    if not isinstance(out, list):
        first = out.data_ptr()
        if first <= tensor.data_ptr() < first + out.size * out.element_size():
            tensor.zero_()
    return real(out, tensor, *args, **kwargs)


@fault(where="ranks", detected_by=("collectives.moves",), after="paddle.distributed:all_gather")
def gather_overwrites_its_input(task, parts, tensor, *args, **kwargs):
    """all_gather uses its input as working memory."""
    tensor.zero_()


@fault(device="sim", where="ranks", detected_by=("all-to-all.values",), after="paddle.distributed:alltoall_single")
def tail_of_uneven_parts_lost(task, out, sent, in_split_sizes=None, *args, **kwargs):
    """All-to-all with uneven parts loses the last element of what arrives."""
    if in_split_sizes and len(set(in_split_sizes)) > 1 and out.size:
        out[-1] = 0


@fault(device="sim", where="ranks", detected_by=("collectives.copies",), wraps="paddle:Tensor.clone")
def copy_reads_later_writes(_real, self):
    """A copy on the card reads its source after the next write to it."""
    return self


@fault(device="sim", where="ranks", detected_by=("collectives.copies",), after="paddle:to_tensor")
def array_read_after_its_call_returned(tensor, data, *args, **kwargs):
    """A copy from an array to the card reads the array when it is used, in some rounds."""
    if isinstance(data, np.ndarray) and data.size >= 1 << 18 and next(calls) % 7 == 0:
        tensor.numpy = lambda: data


def _is_unaligned(tensor):
    """Whether the memory begins where no allocation does: a piece of a longer tensor."""
    return tensor.data_ptr() % 64 != 0


@fault(where="ranks", detected_by=("collectives.reductions",), wraps="paddle.distributed.communication.stream:all_reduce")
def number_without_axis_counts_as_empty(real, tensor, *args, **kwargs):
    """all_reduce takes a tensor without an axis for one without elements."""
    own = tensor.clone() if tensor.ndim == 0 else None
    task = real(tensor, *args, **kwargs)
    if own is not None:
        tensor.set_value(own)
    return task


@fault(where="ranks", detected_by=("collectives.reductions",), wraps="paddle.distributed.communication.stream:all_reduce")
def unaligned_memory_loses_its_first_element(real, tensor, *args, **kwargs):
    """all_reduce begins at the next aligned address: the first element of a piece of a tensor stays as it was."""
    first = tensor[:1].clone() if tensor.ndim and _is_unaligned(tensor) else None
    task = real(tensor, *args, **kwargs)
    if first is not None:
        tensor[:1] = first
    return task


@fault(where="ranks", detected_by=("collectives.reductions",), after="paddle.distributed.communication.stream:all_reduce")
def unsigned_bytes_added_as_signed(task, tensor, *args, **kwargs):
    """A sum of uint8 saturates at 127."""
    if tensor.dtype == paddle.uint8:
        tensor.set_value(tensor.astype("int32").clip(max=127).astype("uint8"))


@fault(where="ranks", detected_by=("collectives.reductions",), after="paddle.distributed:all_reduce")
def sum_of_one_rank_is_empty(task, tensor, *args, group=None, **kwargs):
    """all_reduce in a group of one rank clears the tensor."""
    if group is not None and group.nranks == 1:
        tensor.zero_()


@fault(
    device="sim",
    where="ranks",
    detected_by=("collectives.reductions",),
    wraps="paddle.distributed.communication.stream:reduce_scatter",
)
def output_cleared_before_its_input_is_read(real, out, tensor, *args, **kwargs):
    """reduce_scatter clears its output first, which may be a part of its input."""
    if not isinstance(tensor, list):
        out.zero_()
    return real(out, tensor, *args, **kwargs)


@fault(where="ranks", detected_by=("collectives.moves",), after="paddle.distributed.communication.stream:broadcast")
def full_blocks_lose_their_last_element(task, tensor, *args, **kwargs):
    """broadcast loses the last element of a tensor that fills its blocks of 1024 exactly."""
    if tensor.size and tensor.size % 1024 == 0:
        tensor[-1:] = paddle.zeros([1], tensor.dtype)


@fault(where="ranks", detected_by=("collectives.moves",), wraps="paddle.distributed.communication.stream:broadcast")
def long_integers_broadcast_in_float64(real, tensor, *args, **kwargs):
    """broadcast sends int64 as float64, which holds 53 of its bits."""
    if tensor.dtype == paddle.int64:
        tensor.set_value(tensor.astype("float64").astype("int64"))
    return real(tensor, *args, **kwargs)


@fault(where="ranks", detected_by=("collectives.moves",), after="paddle.distributed.communication.stream:scatter")
def nan_cleared_on_its_way(task, tensor, *args, **kwargs):
    """NaN that is scattered arrives as zero."""
    if tensor.dtype in (paddle.float32, paddle.float64):
        tensor.set_value(paddle.where(paddle.isnan(tensor), paddle.zeros_like(tensor), tensor))


@fault(where="ranks", detected_by=("collectives.moves",), wraps="paddle.distributed:broadcast")
def broadcast_is_not_awaited(real, tensor, *args, sync_op=True, **kwargs):
    """wait returns before an asynchronous broadcast has arrived."""
    if sync_op:
        return real(tensor, *args, **kwargs)
    real(tensor.clone(), *args, **kwargs)
    return None


@fault(device="sim", where="ranks", detected_by=("all-to-all.values",), after="paddle.distributed:alltoall")
def list_of_parts_reversed(task, parts, *args, **kwargs):
    """All-to-all of a list returns the parts in reverse order."""
    parts.reverse()


@fault(
    device="sim",
    where="ranks",
    detected_by=("all-to-all.values",),
    after="paddle.distributed.communication.stream:alltoall_single",
)
def wide_types_exchanged_in_half(task, out, *args, **kwargs):
    """All-to-all counts four bytes for each element: of types of eight bytes the second half does not arrive."""
    if out.size and out.element_size() == 8:
        out[out.size // 2 :] = paddle.zeros([out.size - out.size // 2], out.dtype)


@fault(
    device="sim",
    where="ranks",
    detected_by=("all-to-all.values",),
    after="paddle.distributed.communication.stream:alltoall_single",
)
def long_exchange_cut(task, out, *args, **kwargs):
    """All-to-all loses what is beyond 65,536 elements."""
    if out.size > 1 << 16:
        out[1 << 16 :] = paddle.zeros([out.size - (1 << 16)], out.dtype)


@fault(
    device="sim",
    where="ranks",
    detected_by=("all-to-all.values",),
    after="paddle.distributed.communication.stream:alltoall_single",
)
def exchange_clears_nan(task, out, *args, **kwargs):
    """NaN that is sent by all-to-all arrives as zero."""
    if out.size and out.dtype in (paddle.float32, paddle.float64):
        out.set_value(paddle.where(paddle.isnan(out), paddle.zeros_like(out), out))


@fault(
    device="sim",
    where="ranks",
    detected_by=("all-to-all.values",),
    after="paddle.distributed.communication.stream:alltoall_single",
)
def exchange_in_a_group_reversed(task, out, *args, group=None, **kwargs):
    """All-to-all in a group has its elements in reverse order."""
    if group is not None and out.size:
        out.set_value(out.flip(0))


@fault(
    device="sim",
    where="ranks",
    detected_by=("all-to-all.values",),
    after="paddle.distributed.communication.stream:alltoall_single",
)
def unaligned_output_loses_its_first_element(task, out, *args, **kwargs):
    """All-to-all begins to write at the next aligned address."""
    if out.size and _is_unaligned(out):
        out[:1] = paddle.zeros([1], out.dtype)
