"""The formulas for memory and traffic agree with values computed by hand, with papers and with published numbers."""

from __future__ import annotations

import dataclasses

import pytest

from xpulab.errors import InputError
from xpulab.reference import cost
from xpulab.reference.cost import Degrees, Model, Precision, StoredActivations, Training

LLAMA2_7B = Model(layers=32, hidden=4096, intermediate=11008, heads=32, kv_heads=32, vocabulary=32000)
SMALL = Model(layers=4, hidden=8, intermediate=24, heads=4, kv_heads=2, vocabulary=40)
BYTES = Precision(weight=1, gradient=1, state=1, activation=1, logit=1)
"""One byte for each number, so that bytes are counts."""

LAYER = 784
"""Parameters of a layer of SMALL: q and o 64 each, k and v 8 x 4 each, gate, up and down 8 x 24 each, two norms of 8."""

ALL_PARAMETERS = 3784
"""Parameters of SMALL: embedding and head 8 x 40 each, four layers, the last norm of 8."""


def memory(model=SMALL, degrees=None, **training):
    return cost.memory(model, Training(**{"sequence": 16, "batch": 64, "precision": BYTES, **training}), degrees or Degrees())


def traffic(model=SMALL, degrees=None, **training):
    given = Training(**{"sequence": 16, "batch": 64, "precision": BYTES, **training})
    return cost.communication(model, given, degrees or Degrees())


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


class TestStates:
    def test_by_hand_on_one_card(self):
        needed = memory(precision=cost.BFLOAT16)
        expected = (2 * ALL_PARAMETERS, 2 * ALL_PARAMETERS, 12 * ALL_PARAMETERS)
        assert (needed.parameters, needed.gradients, needed.optimizer) == expected

    def test_data_parallelism_alone_has_buffers_for_all_gradients(self):
        assert memory(degrees=Degrees(dp=8)).gradients == 2 * ALL_PARAMETERS
        assert memory(degrees=Degrees(dp=2, sharding=4)).gradients == ALL_PARAMETERS

    @pytest.mark.parametrize(
        ("stage", "whole", "parts"),
        [(1, False, 1), (2, False, 4), (2, True, 1), (3, True, 4)],
        ids=["stage 1", "stage 2", "stage 2 with whole gradients", "stage 3 has no whole gradients"],
    )
    def test_sharded_gradients_by_hand(self, stage, whole, parts):
        needed = memory(degrees=Degrees(sharding=4), sharding_stage=stage, whole_gradients=whole)
        assert needed.gradients == ALL_PARAMETERS / parts

    def test_the_first_pipeline_stage_has_the_embedding_and_a_tied_head_is_counted_once(self):
        tied = dataclasses.replace(SMALL, tied=True)
        assert memory(degrees=Degrees(pp=2)).parameters == 320 + 2 * LAYER
        assert memory(tied).parameters == 320 + 4 * LAYER + 8


class TestActivations:
    ONE = StoredActivations(whole=1, queries=0, keys=0, wide=0, scores=0, last=0)

    def test_a_layer_by_hand(self):
        stored = StoredActivations(whole=1, queries=2, keys=3, wide=4, scores=5, last=6)
        layer = 16 * (1 * 8 + 2 * 8 + 3 * 4 + 4 * 24 + 5 * 16 * 4)  # 16 tokens; 4 heads of 16 x 16 scores
        assert memory(stored=stored).activations == 4 * layer + 16 * 6 * 8 + 16 * 40

    def test_recomputation_stores_inputs_and_one_layer(self):
        stored = StoredActivations(whole=9, queries=0, keys=0, wide=0, scores=0, last=0)
        assert memory(stored=stored, recompute=True).activations == 4 * 16 * 8 + max(16 * 9 * 8, 16 * 40)

    def test_tensor_parallelism_does_not_cut_norms(self):
        stored = StoredActivations(whole=1, queries=1, keys=0, wide=0, scores=0, last=1)
        assert memory(degrees=Degrees(mp=2), stored=stored).activations == 4 * 16 * (8 + 4) + 16 * 8 + 16 * 20

    def test_sep_cuts_the_sequence(self):
        layer = 8 * (4 * 8 + 2 * 8 + 2 * 4 + 3 * 24)  # 8 of the 16 tokens; FUSED stores 4, 2, 2 and 3 of each kind
        assert memory(degrees=Degrees(sep=2)).activations == 4 * layer + 8 * 2 * 8 + 8 * 40

    # With a vocabulary of 4 the logits are so small that the first stage of a pipeline needs most.
    @pytest.mark.parametrize(("micro_batches", "stored"), [(64, 4), (4, 4), (2, 2)])
    def test_a_pipeline_stores_as_many_micro_batches_as_stages_but_no_more_than_there_are(self, micro_batches, stored):
        model = dataclasses.replace(SMALL, vocabulary=4)
        gradients = 2 * 16 * (24 + 8)  # of gate and up, of the input and the output of the MLP
        assert memory(model, Degrees(pp=4), stored=self.ONE, batch=micro_batches).activations == stored * 16 * 8 + gradients


class TestCommunication:
    @pytest.mark.parametrize("mp", [2, 4])
    def test_tensor_parallelism_sends_8_bsh_a_layer(self, mp):
        # Narayanan et al. (arXiv 2104.04473), section 3.2: 8 b s h (t - 1) / t a layer and micro-batch
        assert traffic(degrees=Degrees(mp=mp)).tensor == pytest.approx(64 * 4 * 8 * 16 * 8 * (mp - 1) / mp)

    @pytest.mark.parametrize(("pp", "directions"), [(2, 1), (4, 2)])
    def test_a_pipeline_sends_bsh_in_each_direction(self, pp, directions):
        assert traffic(degrees=Degrees(pp=pp)).pipeline == 64 * directions * 16 * 8

    # ZeRO, section 7: 2 Psi for data parallelism and stages 1 and 2, 3 Psi for stage 3, of one micro-batch and many ranks.
    @pytest.mark.parametrize(("stage", "psi"), [(1, 2), (2, 2), (3, 3)])
    def test_sharding_sends_as_much_as_in_the_zero_paper(self, stage, psi):
        sent = traffic(degrees=Degrees(sharding=64), sharding_stage=stage).data
        assert sent == pytest.approx(psi * ALL_PARAMETERS * 63 / 64)

    def test_data_parallelism_is_an_all_reduce(self):
        assert traffic(degrees=Degrees(dp=4)).data == pytest.approx(2 * ALL_PARAMETERS * 3 / 4)

    def test_sep_exchanges_queries_keys_values_and_results(self):
        # 8 tokens a rank, q and o 8 wide, k and v 4 wide; forward and backward; half of it leaves the rank
        assert traffic(degrees=Degrees(sep=2)).sequence == 64 * 4 * 2 * 8 * (8 + 8 + 4 + 4) / 2


class TestLegal:
    TRAINING = Training(sequence=16, batch=8)

    def test_degreesof_four_cards_by_hand(self):
        found = {str(each) for each in cost.legal(SMALL, self.TRAINING, 4)}
        # kv heads allow mp x sep = 2; of five degrees with the product 4 those with mp4, sep4 and mp2 sep2 are illegal
        expected = {"dp4", "sharding4", "pp4", "dp2 sharding2", "dp2 mp2", "dp2 pp2", "dp2 sep2", "sharding2 mp2"}
        assert found == expected | {"sharding2 pp2", "sharding2 sep2", "mp2 pp2", "pp2 sep2"}

    @pytest.mark.parametrize(
        ("degrees", "training", "reason"),
        [
            (Degrees(mp=8), {}, "heads 4 is not divisible by mp x sep = 8"),
            (Degrees(mp=4), {}, "key and value heads 2 is not divisible by mp x sep = 4"),
            (Degrees(pp=3), {}, "layers 4 is not divisible by pp = 3"),
            (Degrees(dp=16), {}, "batch 8 is not divisible by dp x sharding x micro-batch = 16"),
            (Degrees(sep=32), {}, "sequence 16 is not divisible by sep = 32"),
            (Degrees(mp=16), {}, "mp 16 does not fit in a node of 8 cards"),
            (Degrees(dp=4, pp=4), {}, "2 micro-batches are too few for 4 stages"),
            (
                Degrees(sharding=2, pp=2),
                {"sharding_stage": 2},
                "pipeline parallel is not compatible for sharding stage2 or stage3",
            ),
        ],
    )
    def test_a_violated_constraint_is_named(self, degrees, training, reason):
        given = dataclasses.replace(self.TRAINING, **training)
        assert reason in cost.constraint_violations(SMALL, given, degrees)

    def test_a_number_of_cards_that_cannot_be_used_is_refused(self):
        with pytest.raises(InputError, match="7 cards cannot be used"):
            cost.legal(SMALL, self.TRAINING, 7)


def test_the_frontier_has_the_pareto_optimal_points():
    points = [(1, 9), (2, 5), (3, 5), (2, 6), (4, 1), (4, 2), (5, 1)]
    assert [points[index] for index in cost.frontier(points)] == [(1, 9), (2, 5), (4, 1)]


class TestArguments:
    def test_for_a_sharded_training(self):
        found = cost.as_arguments(LLAMA2_7B, Training(4096, 64, 2), Degrees(dp=2, sharding=4, mp=2))
        assert found["gradient_accumulation_steps"] == 4
        assert (found["sharding"], found["sharding_parallel_degree"]) == ("stage1", 4)
        assert (found["tensor_parallel_degree"], found["bf16"], found["fp16_opt_level"]) == (2, True, "O2")
