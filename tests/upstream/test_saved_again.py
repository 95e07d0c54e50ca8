"""What docs/upstream.md reports of a document of Paddle: saving where one means to load loses the checkpoint."""

from __future__ import annotations

import paddle
import paddle.distributed as dist
import pytest

from xpulab.chapters.shared import workarounds

pytestmark = pytest.mark.integration


def test_a_second_save_in_a_folder_replaces_the_first_and_loads_nothing(tmp_path):
    workarounds.silence_checkpoint_log()
    dist.save_state_dict({"w": paddle.full([2], 7.0)}, str(tmp_path))
    new = {"w": paddle.full([2], -1.0)}
    dist.save_state_dict(new, str(tmp_path))
    loaded = {"w": paddle.zeros([2])}
    dist.load_state_dict(loaded, str(tmp_path))
    assert (new["w"].tolist(), loaded["w"].tolist()) == ([-1.0, -1.0], [-1.0, -1.0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.metadata", "0_0.distcp"]
