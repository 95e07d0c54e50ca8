"""Faults that 07_collectives must detect in its matrix: a collective is wrong for some sizes, values, ranks or repetitions."""

from __future__ import annotations

from xpulab.faults.fault import fault


@fault("07_collectives", where="ranks", detected_by=("collectives.values",))
def odd_sizes_lose_the_last_element() -> None:
    """all_reduce leaves the last element of an odd number of elements as it was."""
    import paddle.distributed as dist

    real = dist.stream.all_reduce

    def all_but_one(tensor, *args, **kwargs):
        last = tensor[-1:].clone() if tensor.size % 2 and tensor.size > 1 else None
        task = real(tensor, *args, **kwargs)
        if last is not None:
            tensor[-1:] = last
        return task

    dist.stream.all_reduce = all_but_one


@fault("07_collectives", where="ranks", detected_by=("collectives.values",))
def maximum_of_negative_numbers_is_zero() -> None:
    """The maximum over ranks begins with 0, so that of negative numbers is 0."""
    import paddle.distributed as dist

    real = dist.stream.all_reduce

    def from_zero(tensor, op=dist.ReduceOp.SUM, *args, **kwargs):
        task = real(tensor, op, *args, **kwargs)
        if op == dist.ReduceOp.MAX:
            tensor.set_value(tensor.clip(min=0))
        return task

    dist.stream.all_reduce = from_zero


@fault("07_collectives", device="sim", where="ranks", detected_by=("collectives.nonfinite",))
def nan_lost_in_a_maximum() -> None:
    """all_reduce with MAX drops NaN."""
    import paddle
    import paddle.distributed as dist

    real = dist.stream.all_reduce

    def dropping(tensor, op=dist.ReduceOp.SUM, *args, **kwargs):
        if op == dist.ReduceOp.MAX and tensor.dtype == paddle.float32:
            tensor.set_value(paddle.nan_to_num(tensor, nan=-1e30))
        return real(tensor, op, *args, **kwargs)

    dist.stream.all_reduce = dropping


@fault("07_collectives", where="ranks", detected_by=("collectives.nonfinite",))
def infinity_becomes_the_largest_number() -> None:
    """A sum over ranks saturates: infinity arrives as the largest number of float32."""
    import paddle
    import paddle.distributed as dist

    real = dist.stream.all_reduce

    def saturating(tensor, *args, **kwargs):
        task = real(tensor, *args, **kwargs)
        if tensor.dtype == paddle.float32 and bool(paddle.isinf(tensor).any()):
            tensor.set_value(tensor.clip(-3e38, 3e38))
        return task

    dist.stream.all_reduce = saturating


@fault("07_collectives", where="ranks", detected_by=("collectives.values", "collectives.algorithms"))
def long_messages_added_in_part() -> None:
    """Beyond 32,768 elements reduce adds the first half only."""
    import paddle.distributed as dist

    real = dist.reduce

    def half(tensor, *args, **kwargs):
        middle = tensor.size // 2
        own = tensor[middle:].clone() if tensor.size > 32_768 else None
        task = real(tensor, *args, **kwargs)
        if own is not None:
            tensor[middle:] = own
        return task

    dist.reduce = half


@fault("07_collectives", where="ranks", detected_by=("collectives.values",))
def reduces_to_the_first_rank() -> None:
    """Reduce gives the result to rank 0, whatever the destination is."""
    import paddle.distributed as dist

    real = dist.stream.reduce

    def to_the_first(tensor, dst=0, *args, group=None, **kwargs):
        return real(tensor, dst if group else 0, *args, group=group, **kwargs)

    dist.stream.reduce = to_the_first


@fault("07_collectives", where="ranks", detected_by=("collectives.values",))
def scatter_counts_from_its_source() -> None:
    """Scatter gives the first part to its source rank instead of rank 0."""
    import paddle.distributed as dist

    real = dist.scatter

    def rotated(tensor, tensor_list=None, src=0, *args, **kwargs):
        parts = tensor_list and [*tensor_list[-src:], *tensor_list[:-src]]
        return real(tensor, parts, src, *args, **kwargs)

    dist.scatter = rotated


@fault("07_collectives", where="ranks", detected_by=("collectives.groups",))
def group_counts_as_if_it_had_the_first_ranks() -> None:
    """In a group that does not begin with rank 0, broadcast takes the source's number for its place among the first ranks."""
    import paddle.distributed as dist

    real = dist.broadcast

    def as_prefix(tensor, src, group=None, **kwargs):
        if group is not None and group.ranks != list(range(group.nranks)):
            src = group.ranks[src % group.nranks]
        return real(tensor, src, group=group, **kwargs)

    dist.broadcast = as_prefix


@fault("07_collectives", where="ranks", detected_by=("collectives.groups",))
def crossing_group_mixes_elements() -> None:
    """A sum in a group of ranks of both halves has its first two elements exchanged."""
    import paddle
    import paddle.distributed as dist

    real = dist.stream.all_reduce

    def mixed(tensor, op=dist.ReduceOp.SUM, group=None, *args, **kwargs):
        task = real(tensor, op, group, *args, **kwargs)
        if group is not None and group.ranks in ([0, 2], [1, 3]) and tensor.size > 1:
            tensor.set_value(paddle.concat([tensor[1:2], tensor[:1], tensor[2:]]))
        return task

    dist.stream.all_reduce = mixed


@fault("07_collectives", where="ranks", detected_by=("collectives.pairs",))
def one_pair_receives_wrong_values() -> None:
    """What rank 1 sends to rank 3 arrives with one element changed."""
    import paddle.distributed as dist

    real = dist.broadcast

    def damaged(tensor, src, group=None, **kwargs):
        task = real(tensor, src, group=group, **kwargs)
        if group is not None and group.ranks == [1, 3] and src == 1 and dist.get_rank() == 3:
            tensor[tensor.size // 2] += 1
        return task

    dist.broadcast = damaged


@fault("07_collectives", where="ranks", detected_by=("collectives.pairs",))
def one_pair_is_not_connected() -> None:
    """A sum of two ranks that have no link is the value of one of them."""
    import paddle.distributed as dist

    real = dist.all_reduce

    def alone(tensor, *args, group=None, **kwargs):
        own = tensor.clone()
        task = real(tensor, *args, group=group, **kwargs)
        if group is not None and group.ranks == [0, 3]:
            tensor.set_value(own)
        return task

    dist.all_reduce = alone


@fault("07_collectives", where="ranks", detected_by=("collectives.algorithms",))
def tree_adds_in_bfloat16() -> None:
    """Messages that are small enough for a tree are added with the digits of bfloat16."""
    import paddle
    import paddle.distributed as dist

    real = dist.all_reduce

    def coarse(tensor, *args, **kwargs):
        if tensor.dtype == paddle.float32 and 100 <= tensor.size < 32_768:
            tensor.set_value(tensor.astype("bfloat16").astype("float32"))
        return real(tensor, *args, **kwargs)

    dist.all_reduce = coarse


@fault("07_collectives", where="ranks", detected_by=("collectives.algorithms",))
def bfloat16_sums_cut_off() -> None:
    """A sum in bfloat16 cuts digits off instead of rounding."""
    import numpy as np
    import paddle
    import paddle.distributed as dist

    real = dist.all_reduce

    def cutting(tensor, *args, **kwargs):
        if tensor.dtype != paddle.bfloat16:
            return real(tensor, *args, **kwargs)
        wide = tensor.astype("float32")
        task = real(wide, *args, **kwargs)
        bits = wide.numpy().view("uint32") & np.uint32(0xFFFF0000)
        tensor.set_value(paddle.to_tensor(bits.view("float32")).astype("bfloat16"))
        return task

    dist.all_reduce = cutting


@fault("07_collectives", where="ranks", detected_by=("collectives.repeats",))
def one_sum_in_thirteen_differs() -> None:
    """Each thirteenth sum of a long message has another last bit."""
    import paddle
    import paddle.distributed as dist

    real, calls = dist.all_reduce, []

    def unsteady(tensor, *args, **kwargs):
        task = real(tensor, *args, **kwargs)
        if tensor.dtype == paddle.float32 and tensor.size > 4096:
            calls.append(tensor.size)
            if len(calls) % 13 == 0:
                tensor.scale_(1 + 2**-22)
        return task

    dist.all_reduce = unsteady


@fault("07_collectives", where="ranks", detected_by=("collectives.messages",))
def second_message_overtakes_the_first() -> None:
    """Of two messages of one size in a batch, the second one arrives first."""
    import paddle.distributed as dist

    real = dist.batch_isend_irecv

    def overtaken(batch):
        for task in real(batch):
            task.wait()
        arrived = [each.tensor for each in batch if each.op == dist.irecv]
        if len(arrived) > 1 and arrived[0].shape == arrived[1].shape:
            first = arrived[0].clone()
            arrived[0].set_value(arrived[1])
            arrived[1].set_value(first)
        return []

    dist.batch_isend_irecv = overtaken


@fault("07_collectives", where="ranks", detected_by=("collectives.messages",))
def last_message_is_lost() -> None:
    """The last of several messages to one rank never reaches its tensor."""
    import paddle.distributed as dist

    real = dist.batch_isend_irecv

    def losing(batch):
        for task in real(batch):
            task.wait()
        arrived = [each.tensor for each in batch if each.op == dist.irecv]
        if len(arrived) > 1:
            arrived[-1].fill_(-1.0)
        return []

    dist.batch_isend_irecv = losing


@fault("07_collectives", where="ranks", detected_by=("collectives.zero-size",))
def nothing_spoils_the_next_sum() -> None:
    """After a collective without elements the next sum is wrong."""
    import paddle.distributed as dist

    real, empty = dist.stream.all_reduce, []

    def spoiled(tensor, *args, **kwargs):
        if tensor.size == 0:
            empty.append(True)
        task = real(tensor, *args, **kwargs)
        if empty:
            tensor.add_(tensor)
        return task

    dist.stream.all_reduce = spoiled


@fault("07_collectives", where="ranks", detected_by=("collectives.values",))
def objects_in_another_order() -> None:
    """all_gather_object returns the objects in the order in which they arrive."""
    import paddle.distributed as dist

    real = dist.all_gather_object

    def by_arrival(found, mine, group=None):
        real(found, mine, group)
        found[:] = [*found[1:], found[0]]

    dist.all_gather_object = by_arrival


@fault("07_collectives", where="ranks", detected_by=("collectives.values",))
def gather_in_place_loses_its_input() -> None:
    """all_gather into a tensor that contains its input clears the input first."""
    import paddle.distributed as dist

    real = dist.stream.all_gather

    def clearing(out, tensor, *args, **kwargs):
        if not isinstance(out, list):
            first = out.data_ptr()
            if first <= tensor.data_ptr() < first + out.size * out.element_size():
                tensor.zero_()
        return real(out, tensor, *args, **kwargs)

    dist.stream.all_gather = clearing


@fault("07_collectives", where="ranks", detected_by=("collectives.values",))
def gather_overwrites_its_input() -> None:
    """all_gather uses its input as working memory."""
    import paddle.distributed as dist

    real = dist.all_gather

    def overwriting(parts, tensor, *args, **kwargs):
        task = real(parts, tensor, *args, **kwargs)
        tensor.zero_()
        return task

    dist.all_gather = overwriting


@fault("07_collectives", device="sim", where="ranks", detected_by=("all-to-all.values",))
def tail_of_uneven_parts_lost() -> None:
    """All-to-all with uneven parts loses the last element of what arrives."""
    import paddle.distributed as dist

    real = dist.alltoall_single

    def losing(out, sent, in_split_sizes=None, *args, **kwargs):
        task = real(out, sent, in_split_sizes, *args, **kwargs)
        if in_split_sizes and len(set(in_split_sizes)) > 1 and out.size:
            out[-1] = 0
        return task

    dist.alltoall_single = losing


@fault("07_collectives", device="sim", where="ranks", detected_by=("collectives.copies",))
def copy_reads_later_writes() -> None:
    """A copy on the card reads its source after the next write to it."""
    import paddle

    paddle.Tensor.clone = lambda self: self


@fault("07_collectives", device="sim", where="ranks", detected_by=("collectives.copies",))
def array_read_after_its_call_returned() -> None:
    """A copy from an array to the card reads the array when it is used, in some rounds."""
    import numpy as np
    import paddle

    real, calls = paddle.to_tensor, []

    def late(data, *args, **kwargs):
        tensor = real(data, *args, **kwargs)
        if isinstance(data, np.ndarray) and data.size >= 1 << 18:
            calls.append(tensor)
            if len(calls) % 7 == 0:
                tensor.numpy = lambda: data
        return tensor

    paddle.to_tensor = late
