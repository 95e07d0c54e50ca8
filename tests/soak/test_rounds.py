"""Temperatures and clocks come from the vendor's tool, or from the system for the processor, while the round runs."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone

import psutil
import pytest

from xpulab.doctor.cards import Card, Reading
from xpulab.soak import rounds
from xpulab.soak.rounds import Part, Sample, Sampler, nearest, read_memory, read_parts

NOW = datetime(2026, 11, 22, 3, 0, tzinfo=timezone.utc)


@pytest.mark.parametrize("device", ["xpu", "gpu"])
def test_of_a_card_the_vendors_tool_is_asked(device, monkeypatch):
    card = Card(3, "P800 OAM", temperature_c=41.0, clock_mhz=1450.0, power_w=93.0, memory_used_mib=2112)
    monkeypatch.setitem(rounds._TOOLS, device, lambda: Reading("tool", (), "ok", "it answered", cards=(card,)))
    assert read_parts(device).parts == (Part("card 3", 41.0, 1450.0, 93.0, 2112),)


def test_a_tool_that_does_not_answer_is_a_note(monkeypatch):
    monkeypatch.setitem(rounds._TOOLS, "xpu", lambda: Reading("xpu-smi", (), "hung", "xpu-smi did not end within 10 s"))
    sample = read_parts("xpu")
    assert sample.parts == () and "xpu-smi did not end within 10 s" in sample.note


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_without_a_card_the_processor_is_read(device, monkeypatch):
    sensor = type("Sensor", (), {"current": 55.0})
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: {"coretemp": [sensor]}, raising=False)
    monkeypatch.setattr(psutil, "cpu_freq", lambda: type("Clock", (), {"current": 2596.4}))
    assert read_parts(device).parts == (Part("processor", 55.0, 2596),)


def test_a_processor_without_sensors_is_a_note(monkeypatch):
    monkeypatch.setattr(psutil, "sensors_temperatures", dict, raising=False)
    monkeypatch.setattr(psutil, "cpu_freq", lambda: None)
    sample = read_parts("cpu")
    assert sample.parts == () and "no sensor" in sample.note


def test_a_round_is_sampled_at_its_begin_and_at_its_end():
    begun = threading.Event()

    def read(device):
        begun.set()
        return Sample(NOW, (Part(device),))

    with Sampler("cpu", 1000.0, read) as sampler:
        assert begun.wait(10)
    assert len(sampler.samples) == 2


def test_a_round_is_sampled_while_it_runs():
    often = threading.Semaphore(0)

    def read(device):
        often.release()
        return Sample(NOW, ())

    with Sampler("cpu", 0.001, read):
        assert all(often.acquire(timeout=10) for _ in range(5))


def test_the_nearest_sample_is_that_with_the_smallest_distance_in_time():
    samples = [Sample(NOW + timedelta(seconds=each), ()) for each in (0, 30, 60)]
    assert nearest(samples, NOW + timedelta(seconds=44)) is samples[1]
    assert nearest([], NOW) is None


def test_memory_is_that_of_machine_process_and_disk(tmp_path):
    memory = read_memory(tmp_path)
    assert memory.machine > memory.own > 0 and memory.disk_free > 0
