"""The formulas for memory and traffic: values worked out by hand, and what papers and model publishers state."""

from __future__ import annotations

import dataclasses

import pytest

from xpulab.errors import InputError
from xpulab.reference import cost
from xpulab.reference.cost import Communication, Degrees, Memory, Model, Precision, StoredActivations, Training

LLAMA2_7B = Model(layers=32, hidden=4096, intermediate=11008, heads=32, kv_heads=32, vocabulary=32000)
SMALL = Model(layers=4, hidden=8, intermediate=24, heads=4, kv_heads=2, vocabulary=40)
BYTES = Precision(weight=1, gradient=1, state=1, activation=1, logit=1)
"""One byte each, so that bytes are counts."""


def memory(model=SMALL, degrees_=None, **training):
    return cost.memory(model, Training(**{"sequence": 16, "batch": 64, "precision": BYTES, **training}), degrees_ or Degrees())


def traffic(model=SMALL, degrees_=None, **training):
    given = Training(**{"sequence": 16, "batch": 64, "precision": BYTES, **training})
    return cost.communication(model, given, degrees_ or Degrees())


class TestParameters:
    # The totals that the models' pages on Hugging Face state.
    @pytest.mark.parametrize(
        ("model", "published"),
        [
            (LLAMA2_7B, 6_738_415_616),
            (Model(40, 5120, 13824, 40, 40, 32000), 13_015_864_320),
            (Model(80, 8192, 28672, 64, 8, 32000), 68_976_648_192),
            (Model(28, 3584, 18944, 28, 4, 152064, qkv_bias=True), 7_615_616_512),
            (Model(48, 5120, 13824, 40, 8, 152064, qkv_bias=True), 14_770_033_664),
            (Model(24, 896, 4864, 14, 2, 151936, tied=True, qkv_bias=True), 494_032_768),
        ],
        ids=["Llama-2 7B", "Llama-2 13B", "Llama-2 70B", "Qwen2.5 7B", "Qwen2.5 14B", "Qwen2.5 0.5B"],
    )
    def test_of_published_models(self, model, published):
        assert model.parameters() == published

    def test_of_a_layer_by_hand(self):
        # q and o 64 each, k and v 8 x 4 each, gate, up and down 8 x 24 each, two norms of 8
        assert SMALL.of_a_layer(1) == 2 * 64 + 2 * 32 + 3 * 192 + 2 * 8

    def test_norms_are_on_every_rank(self):
        assert SMALL.of_a_layer(2) == (2 * 64 + 2 * 32 + 3 * 192) // 2 + 2 * 8


class TestStates:
    # ZeRO (arXiv 1910.02054), figure 1: 7.5 billion parameters on 64 cards, in GB.
    @pytest.mark.parametrize(("stage", "published"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.88)])
    def test_those_of_the_zero_paper(self, stage, published):
        needed = memory(LLAMA2_7B, Degrees(sharding=64), sharding_stage=stage, precision=cost.BFLOAT16)
        states = needed.parameters + needed.gradients + needed.optimizer
        assert states / LLAMA2_7B.parameters() * 7.5 == pytest.approx(published, rel=0.005)

    def test_by_hand_on_one_card(self):
        needed = memory(precision=cost.BFLOAT16)
        count = 2 * 320 + 4 * SMALL.of_a_layer(1) + 8
        assert (needed.parameters, needed.gradients, needed.optimizer) == (2 * count, 2 * count, 12 * count)

    def test_data_parallelism_alone_saves_nothing(self):
        assert memory(degrees_=Degrees(dp=8), sharding_stage=3).parameters == memory().parameters

    def test_gradients_in_float32_need_twice_as_much(self):
        short, long = (memory(precision=each) for each in (cost.BFLOAT16, cost.BFLOAT16_MAIN_GRADIENTS))
        assert long.gradients == 2 * short.gradients

    def test_whole_gradients_are_those_of_stage_1(self):
        two, whole, one = (
            memory(degrees_=Degrees(sharding=4), sharding_stage=stage, whole_gradients=buffers)
            for stage, buffers in ((2, False), (2, True), (1, False))
        )
        assert whole.gradients == one.gradients == 4 * two.gradients

    def test_the_first_stage_of_a_pipeline_has_the_embedding_and_the_last_one_the_head(self):
        tied = dataclasses.replace(SMALL, tied=True)
        assert memory(degrees_=Degrees(pp=2)).parameters == 320 + 2 * SMALL.of_a_layer(1)
        assert memory(tied).parameters == 320 + 4 * SMALL.of_a_layer(1) + 8

    def test_total_is_the_sum(self):
        assert Memory(1, 2, 4, 8).total == 15
        assert Communication(1, 2, 4, 8).total == 15


class TestActivations:
    ONE = StoredActivations(whole=1, queries=0, keys=0, wide=0, scores=0, last=0)

    def test_a_layer_by_hand(self):
        kept = StoredActivations(whole=1, queries=2, keys=3, wide=4, scores=5, last=6)
        layer = 16 * (1 * 8 + 2 * 8 + 3 * 4 + 4 * 24 + 5 * 16 * 4)  # 16 tokens; 4 heads of 16 x 16 scores
        assert memory(stored=kept).activations == 4 * layer + 16 * 6 * 8 + 16 * 40

    def test_recomputation_keeps_inputs_and_one_layer(self):
        kept = StoredActivations(whole=9, queries=0, keys=0, wide=0, scores=0, last=0)
        assert memory(stored=kept, recompute=True).activations == 4 * 16 * 8 + max(16 * 9 * 8, 16 * 40)

    def test_tensor_parallelism_leaves_norms_whole(self):
        kept = StoredActivations(whole=1, queries=1, keys=0, wide=0, scores=0, last=1)
        assert memory(degrees_=Degrees(mp=2), stored=kept).activations == 4 * 16 * (8 + 4) + 16 * 8 + 16 * 20

    def test_sequence_parallelism_cuts_them_too(self):
        # Korthikanti et al. (arXiv 2205.05198), equation 4: with it everything is divided by t
        kept = StoredActivations(whole=4, queries=2, keys=2, wide=3, scores=0, last=2)
        assert (
            memory(degrees_=Degrees(mp=2), stored=kept, sequence_parallel=True).activations
            == memory(stored=kept).activations / 2
        )

    def test_sep_cuts_the_sequence(self):
        assert memory(degrees_=Degrees(sep=2)).activations == memory().activations / 2

    # With a vocabulary of 4 the logits are so small that the first stage of a pipeline needs most.
    @pytest.mark.parametrize(("micro_batches", "alive"), [(64, 4), (4, 4), (2, 2)])
    def test_a_pipeline_keeps_as_many_micro_batches_as_stages_but_no_more_than_there_are(self, micro_batches, alive):
        model = dataclasses.replace(SMALL, vocabulary=4)
        assert memory(model, Degrees(pp=4), stored=self.ONE, batch=micro_batches).activations == alive * 16 * 8

    # PaddleNLP, llm/docs/pretrain.md: max_memory_allocated in MB (2**20) on A100 cards, tp2 sd4 stage2, sequences of 4,096;
    # micro-batches from llm/llama/pretrain-llama2_7b-tp2sd4_stage2.json and its neighbours.
    @pytest.mark.parametrize(
        ("model", "micro_batch", "published"),
        [
            (LLAMA2_7B, 2, 52092),
            (Model(40, 5120, 13824, 40, 40, 32000), 1, 64294),
            (Model(32, 4096, 11008, 32, 32, 151936, qkv_bias=True), 2, 65448),
        ],
        ids=["Llama-2 7B", "Llama-2 13B", "Qwen 7B"],
    )
    def test_near_what_paddlenlp_published(self, model, micro_batch, published):
        training = Training(4096, 64, micro_batch, sharding_stage=2, stored=cost.PLAIN_NORM, whole_gradients=True)
        needed = cost.memory(model, training, Degrees(mp=2, sharding=4))
        assert needed.total / 2**20 == pytest.approx(published, rel=0.1)


class TestCommunication:
    def test_one_card_is_silent(self):
        assert traffic().total == 0

    @pytest.mark.parametrize("mp", [2, 4])
    def test_tensor_parallelism_sends_8_bsh_a_layer(self, mp):
        # Narayanan et al. (arXiv 2104.04473), section 3.2: 8 b s h (t - 1) / t a layer and micro-batch
        assert traffic(degrees_=Degrees(mp=mp)).tensor == pytest.approx(64 * 4 * 8 * 16 * 8 * (mp - 1) / mp)

    def test_recomputation_adds_a_forward_pass(self):
        assert traffic(degrees_=Degrees(mp=2), recompute=True).tensor == 1.5 * traffic(degrees_=Degrees(mp=2)).tensor

    @pytest.mark.parametrize(("pp", "ways"), [(2, 1), (4, 2)])
    def test_a_pipeline_sends_bsh_each_way(self, pp, ways):
        assert traffic(degrees_=Degrees(pp=pp)).pipeline == 64 * ways * 16 * 8

    # ZeRO, section 7: 2 Psi for data parallelism and stages 1 and 2, 3 Psi for stage 3, of one micro-batch and many ranks.
    @pytest.mark.parametrize(("stage", "psi"), [(1, 2), (2, 2), (3, 3)])
    def test_sharding_sends_what_the_zero_paper_says(self, stage, psi):
        sent = traffic(degrees_=Degrees(sharding=64), sharding_stage=stage).data
        assert sent == pytest.approx(psi * SMALL.parameters() * 63 / 64)

    def test_data_parallelism_is_an_all_reduce(self):
        assert traffic(degrees_=Degrees(dp=4)).data == pytest.approx(2 * SMALL.parameters() * 3 / 4)

    def test_sep_exchanges_queries_keys_values_and_results(self):
        # 8 tokens a rank, q and o 8 wide, k and v 4 wide; forward and backward; half of it leaves the rank
        assert traffic(degrees_=Degrees(sep=2)).sequence == 64 * 4 * 2 * 8 * (8 + 8 + 4 + 4) / 2


class TestLegal:
    TRAINING = Training(sequence=16, batch=8)

    def test_all_of_four_cards_by_hand(self):
        found = {str(each) for each in cost.legal(SMALL, self.TRAINING, 4)}
        # kv heads allow mp x sep = 2; of five degrees with the product 4 those with mp 4, sep 4, mp2 sep2 fall away
        expected = {"dp4", "sharding4", "pp4", "dp2 sharding2", "dp2 mp2", "dp2 pp2", "dp2 sep2", "sharding2 mp2"}
        assert found == expected | {"sharding2 pp2", "sharding2 sep2", "mp2 pp2", "pp2 sep2"}

    def test_it_is_sorted_and_uses_every_card(self):
        found = cost.legal(LLAMA2_7B, Training(4096, 1024), 64)
        assert found == sorted(set(found))
        assert {each.cards for each in found} == {64}

    @pytest.mark.parametrize(
        ("degrees_", "training", "reason"),
        [
            (Degrees(mp=8), {}, "heads 4 cannot be cut in mp x sep = 8"),
            (Degrees(mp=4), {}, "key and value heads 2 cannot be cut in mp x sep = 4"),
            (Degrees(pp=3), {}, "layers 4 cannot be cut in pp = 3"),
            (Degrees(dp=16), {}, "batch 8 cannot be cut in dp x sharding x micro-batch = 16"),
            (Degrees(sep=32), {}, "sequence 16 cannot be cut in sep = 32"),
            (Degrees(mp=2), {"sequence": 15, "sequence_parallel": True}, "sequence 15 cannot be cut in mp x sep = 2"),
            (Degrees(mp=16), {}, "mp 16 leaves the node of 8 cards"),
            (Degrees(dp=4, pp=4), {}, "2 micro-batches do not fill 4 stages"),
            (
                Degrees(sharding=2, pp=2),
                {"sharding_stage": 2},
                "pipeline parallel is not compatible for sharding stage2 or stage3",
            ),
        ],
    )
    def test_it_says_why_not(self, degrees_, training, reason):
        given = dataclasses.replace(self.TRAINING, **training)
        assert reason in cost.constraint_violations(SMALL, given, degrees_)

    def test_nothing_is_wrong_with_one_card(self):
        assert cost.constraint_violations(SMALL, self.TRAINING, Degrees()) == []

    def test_a_number_of_cards_that_cannot_be_used_is_refused(self):
        with pytest.raises(InputError, match="7 cards cannot be used"):
            cost.legal(SMALL, self.TRAINING, 7)


def test_the_frontier_is_what_nothing_beats():
    points = [(1, 9), (2, 5), (3, 5), (2, 6), (4, 1), (4, 2), (5, 1)]
    assert [points[index] for index in cost.frontier(points)] == [(1, 9), (2, 5), (4, 1)]


def test_the_bubble_of_four_stages_and_eight_micro_batches():
    assert cost.bubble(Training(16, 8), Degrees(pp=4)) == 3 / 11


def test_one_card_is_called_so():
    assert (str(Degrees()), str(Degrees(sharding=2, sep=4))) == ("one card", "sharding2 sep4")


class TestArguments:
    def test_for_a_sharded_training(self):
        found = cost.as_arguments(LLAMA2_7B, Training(4096, 64, 2), Degrees(dp=2, sharding=4, mp=2))
        assert found["gradient_accumulation_steps"] == 4
        assert (found["sharding"], found["sharding_parallel_degree"]) == ("stage1", 4)
        assert (found["tensor_parallel_degree"], found["bf16"], found["fp16_opt_level"]) == (2, True, "O2")

    def test_without_sharding_none_is_named(self):
        assert "sharding" not in cost.as_arguments(SMALL, Training(16, 8), Degrees(dp=2))

    def test_float32_names_no_mixed_precision(self):
        found = cost.as_arguments(SMALL, Training(16, 8, precision=cost.FLOAT32, stored=cost.PLAIN), Degrees())
        assert (found["bf16"], found["use_flash_attention"], "fp16_opt_level" in found) == (False, False, False)
