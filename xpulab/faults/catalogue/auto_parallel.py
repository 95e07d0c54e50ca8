"""Faults that 06_auto_parallel must see."""

from __future__ import annotations

from xpulab.faults.fault import Fault, in_every_rank

_NOTEBOOK = "06_auto_parallel"

FAULTS = (
    Fault(
        name="swapped-shard",
        what="reshard hands two ranks each other's part",
        notebook=_NOTEBOOK,
        breaks=in_every_rank("""
            import paddle.distributed as dist
            from paddle import roll
            real = dist.reshard
            def swapped(tensor, mesh, placements):
                cut = [each for each in placements if each.is_shard()]
                if tensor.stop_gradient and len(placements) == 1 and cut:
                    whole = dist.auto_parallel.api.dtensor_from_local
                    moved = real(tensor, mesh, placements)
                    return whole(roll(moved._local_value(), 1), mesh, placements)
                return real(tensor, mesh, placements)
            dist.reshard = swapped
        """),
        seen_by=("reshard.values",),
    ),
    Fault(
        name="summand-forgotten",
        what="reshard leaves one rank's summand out when it adds up",
        notebook=_NOTEBOOK,
        breaks=in_every_rank("""
            import paddle.distributed as dist
            real = dist.reshard
            def forgetful(tensor, mesh, placements):
                if any(each.is_partial() for each in tensor.placements) and dist.get_rank() == 1:
                    tensor._local_value().scale_(0.0)
                return real(tensor, mesh, placements)
            dist.reshard = forgetful
        """),
        seen_by=("reshard.values", "auto-parallel-config.gradients"),
    ),
    Fault(
        name="gradient-doubled",
        what="every backward pass gives twice the gradient on the ranks",
        notebook=_NOTEBOOK,
        breaks=in_every_rank("""
            import paddle
            real = paddle.Tensor.backward
            paddle.Tensor.backward = lambda self, *given, **named: real(self * 2, *given, **named)
        """),
        seen_by=(
            "auto-parallel-config.gradients",
            "auto-parallel-config.trainer",
            "shard-optimizer.steps",
            "gradient-accumulation.sharded",
            "gradient-accumulation.trainer",
            "parallel-loss.values",
        ),
    ),
    Fault(
        name="data-parallel-adds-up",
        what="paddle.DataParallel adds the ranks' gradients up and does not divide by their number",
        notebook=_NOTEBOOK,
        device="sim",
        breaks=in_every_rank("""
            import paddle, paddle.distributed as dist
            real = paddle.DataParallel.forward
            def scaled(self, *given, **named):
                out = real(self, *given, **named)
                first = out[0] if isinstance(out, tuple) else out
                first.register_hook(lambda gradient: gradient * dist.get_world_size())
                return out
            paddle.DataParallel.forward = scaled
        """),
        seen_by=("auto-parallel-config.gradients",),
    ),
    Fault(
        name="row-bias-on-every-rank",
        what="a row-parallel layer adds its bias once for each rank",
        notebook=_NOTEBOOK,
        breaks=in_every_rank("""
            import paddle.nn.functional as F
            from paddle import nn
            def forward(self, x):
                out = F.linear(x, self.weight, self.bias)
                row = self.weight.is_dist() and any(each.is_shard(0) for each in self.weight.placements)
                return out + self.bias if row and self.bias is not None else out
            nn.Linear.forward = forward
        """),
        seen_by=("auto-parallel-config.loss", "auto-parallel-config.gradients"),
    ),
    Fault(
        name="heads-mixed-up",
        what="a cut query weight has its columns in the wrong order",
        notebook=_NOTEBOOK,
        breaks=in_every_rank("""
            import paddle, paddle.distributed as dist
            real = dist.shard_tensor
            def mixed(data, mesh, placements, *rest, **named):
                if any(each.is_shard(1) for each in placements) and data.shape == [16, 16] and not data.stop_gradient:
                    data.set_value(paddle.roll(data, 4, axis=1))
                return real(data, mesh, placements, *rest, **named)
            dist.shard_tensor = mixed
        """),
        seen_by=("auto-parallel-config.loss", "auto-parallel-config.gradients"),
    ),
    Fault(
        name="state-not-sharded",
        what="shard_optimizer leaves the whole state on every rank",
        notebook=_NOTEBOOK,
        breaks=in_every_rank("""
            import paddle.distributed as dist
            real = dist.shard_optimizer
            dist.shard_optimizer = lambda optimizer, how=None, *rest, **named: real(optimizer, None, *rest, **named)
        """),
        seen_by=("shard-optimizer.bytes",),
    ),
    Fault(
        name="model-not-cut",
        what="shard_layer and parallelize leave the whole weights on every rank",
        notebook=_NOTEBOOK,
        breaks=in_every_rank("""
            import paddle.distributed as dist
            dist.shard_layer = lambda layer, mesh, function=None, **named: layer
            dist.parallelize = lambda model, optimizer=None, **named: (model, optimizer)
        """),
        seen_by=("auto-parallel-config.held",),
    ),
    Fault(
        name="micro-batches-not-divided",
        what="AutoTrainer does not divide a micro-batch's loss by their number",
        notebook=_NOTEBOOK,
        breaks=in_every_rank("""
            from xpulab.notebook import workarounds
            workarounds.restore_distributed_checkpoint()
            from paddlenlp.trainer.auto_trainer import AutoTrainer
            real = AutoTrainer.dynamic_training
            def undivided(self, model, inputs):
                steps, self.args.gradient_accumulation_steps = self.args.gradient_accumulation_steps, 1
                try:
                    return real(self, model, inputs)
                finally:
                    self.args.gradient_accumulation_steps = steps
            AutoTrainer.dynamic_training = undivided
        """),
        seen_by=("gradient-accumulation.trainer",),
    ),
    Fault(
        name="rows-the-same-on-every-rank",
        what="shard_dataloader gives every rank the rows of the first",
        notebook=_NOTEBOOK,
        breaks=in_every_rank("""
            import paddle.distributed as dist
            from paddle.distributed.auto_parallel import api
            first = api.ShardDataloader.__init__
            def always_first(self, *given, **named):
                rank = dist.get_rank
                dist.get_rank = lambda *_: 0
                try:
                    first(self, *given, **named)
                finally:
                    dist.get_rank = rank
            api.ShardDataloader.__init__ = always_first
        """),
        seen_by=("shard-dataloader.rows",),
    ),
    Fault(
        name="softmax-without-the-others",
        what="cross entropy of cut logits takes the largest and the sum of its own columns only",
        notebook=_NOTEBOOK,
        breaks=in_every_rank("""
            import paddle, paddle.distributed as dist, paddle.nn.functional as F
            real = F.cross_entropy
            def alone(logits, labels, *rest, **named):
                if named.get("reduction") == "none" and logits.is_dist() and logits.placements[0].is_shard(1):
                    mine = logits._local_value()
                    local = F.log_softmax(mine, axis=-1)
                    mesh, cut = logits.process_mesh, logits.placements
                    probabilities = dist.auto_parallel.api.dtensor_from_local(local, mesh, cut)
                    whole = dist.reshard(probabilities, mesh, [dist.Replicate()])
                    plain = dist.reshard(labels, mesh, [dist.Replicate()])
                    return real(logits, labels, *rest, **named) * 0 - whole.take_along_axis(plain.unsqueeze(1), 1).squeeze(1)
                return real(logits, labels, *rest, **named)
            F.cross_entropy = alone
        """),
        seen_by=("parallel-loss.values",),
    ),
    Fault(
        name="gradients-not-counted",
        what="the formula for memory forgets the gradients",
        notebook=_NOTEBOOK,
        breaks="""
            from xpulab.reference.cost import Memory
            Memory.total = property(lambda self: self.parameters + self.optimizer + self.activations)
        """,
        seen_by=("auto-parallel-config.published",),
    ),
    Fault(
        name="attention-scores-not-counted",
        what="the formula for memory forgets the attention scores of plain kernels",
        notebook=_NOTEBOOK,
        device="sim",
        breaks="""
            from dataclasses import replace
            from xpulab.reference import cost
            cost.PLAIN = replace(cost.PLAIN, scores=0)
        """,
        seen_by=("auto-parallel-config.memory",),
    ),
    Fault(
        name="node-forgotten",
        what="degrees are called legal although tensor parallelism leaves the node",
        notebook=_NOTEBOOK,
        breaks="""
            from xpulab.reference import cost
            real = cost.legal
            cost.legal = lambda model, training, cards: real(model, training, cards, 64)
        """,
        seen_by=("auto-parallel-config.legal",),
    ),
    Fault(
        name="data-degree-forgotten",
        what="the configuration that is written names another sharding degree",
        notebook=_NOTEBOOK,
        breaks="""
            from xpulab.reference import cost
            real = cost.as_arguments
            def other(model, training, each):
                found = real(model, training, each)
                return found | {key: 1 for key in found if key == "sharding_parallel_degree"}
            cost.as_arguments = other
        """,
        seen_by=("auto-parallel-config.arguments",),
    ),
    Fault(
        name="smaller-axis-keeps-its-cut",
        what="where rows cannot stay cut along two axes, the smaller axis keeps its cut",
        notebook=_NOTEBOOK,
        breaks=in_every_rank("""
            import paddle, paddle.distributed as dist
            real = paddle.cumsum
            def cumsum(x, axis=None, **named):
                if x.is_dist():
                    sizes = x.process_mesh.shape
                    keeps = sizes.index(min(sizes))
                    placements = [dist.Shard(0) if index == keeps else dist.Replicate() for index in range(2)]
                    x = dist.reshard(x, x.process_mesh, placements)
                return real(x, axis=axis, **named)
            paddle.cumsum = cumsum
        """),
        seen_by=("mesh-fallback.placements",),
    ),
    Fault(
        name="norm-of-rows-cut-twice",
        what="layer norm of rows that are cut along two axes is off by a thousandth",
        notebook=_NOTEBOOK,
        breaks=in_every_rank("""
            import paddle.nn.functional as F
            real = F.layer_norm
            def layer_norm(x, *given, **named):
                result = real(x, *given, **named)
                if x.is_dist():
                    result._local_value().scale_(1.001)
                return result
            F.layer_norm = layer_norm
        """),
        seen_by=("mesh-fallback.values",),
    ),
    Fault(
        name="wrong-row-of-a-cut-embedding",
        what="an embedding whose rows are cut gives the next token's row",
        notebook=_NOTEBOOK,
        breaks=in_every_rank("""
            import paddle.nn.functional as F
            real = F.embedding
            def embedding(x, weight, *given, **named):
                cut = weight.is_dist() and weight.placements[0].is_shard(0)
                return real((x + 1) % weight.shape[0] if cut else x, weight, *given, **named)
            F.embedding = embedding
        """),
        seen_by=("parallel-loss.values",),
    ),
    Fault(
        name="ring-goes-round-once",
        what="an all-reduce is counted as if each card sent its message once",
        notebook=_NOTEBOOK,
        breaks="""
            from xpulab.reference import cost
            cost._all_reduce = cost._ring
        """,
        seen_by=("auto-parallel-config.traffic",),
    ),
    Fault(
        name="bubble-forgotten",
        what="the stages of a pipeline are thought never to wait",
        notebook=_NOTEBOOK,
        breaks="""
            from xpulab.reference import cost
            cost.bubble = lambda training, each: 0.0
        """,
        seen_by=("auto-parallel-config.traffic",),
    ),
)
