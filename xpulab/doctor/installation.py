"""Findings about the installation: one framework, imports that work, and cards that compute."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from xpulab.devices import wheel_device
from xpulab.doctor.finding import Finding, known_finding
from xpulab.doctor.paddle_facts import PaddleFacts
from xpulab.doctor.probe import Probe, Step
from xpulab.doctor.remedies import match
from xpulab.doctor.versions import SeveralFrameworks, framework_row, require_one_framework
from xpulab.messages import N_

_FAILED_STEPS = {"crashed": "import-crashed", "hung": "import-hung"}
_FAILED_CARDS = {"raised": "card-computation", "crashed": "card-computation", "hung": "card-hung"}


def installation(device: str, paddle: PaddleFacts | None, probed: Probe | None) -> Iterator[Finding]:
    """The findings, in the order in which to fix them.

    paddle: its facts; None when nothing was imported. probed: all steps; None when only facts are known.
    """
    try:
        require_one_framework(device)
    except SeveralFrameworks as error:  # their files are each other's
        yield Finding("several-frameworks", "wrong", error.seen, " && ".join(error.commands))
    if probed is not None:
        yield _without(probed) or _import(device, "paddle", probed.paddle)
        yield from _cards(device, probed.cards)
        if probed.paddlenlp is not None:
            yield _import(device, "paddlenlp", probed.paddlenlp)
    elif paddle is not None:
        yield _paddle(device, paddle)


def _without(probed: Probe) -> Finding | None:
    """The finding about an import that works without a variable, unless a row says more: nothing need be installed again."""
    if probed.without is None or _row(probed.paddle, "") == "foreign-plugin":
        return None
    failed, value = _format_failed("import paddle", probed.paddle), os.environ[probed.without]
    seen = N_("{failed}; without {name} it works", failed=failed, name=probed.without)
    cause = N_("{name}={value} puts files of another place before those of this environment", name=probed.without, value=value)
    remedy = N_("unset {name}; look where it is set (~/.bashrc, the image, a module of the cluster)", name=probed.without)
    return Finding("paddle", "wrong", seen, remedy, cause)


def failed_import(device: str, name: str, step: Step) -> Finding:
    """The finding about an import of "paddle" or "paddlenlp" that did not work."""
    row = _row(step, _FAILED_STEPS.get(step.outcome, f"{name}-import"))
    return known_finding(name, "wrong", _format_failed(f"import {name}", step), row, device)


def _import(device: str, name: str, step: Step) -> Finding:
    """What an import did; of Paddle also whether it is built for the device."""
    if step.outcome != "ok":
        return failed_import(device, name, step)
    if step.facts is not None:
        return _paddle(device, step.facts)
    return Finding(name, "ok", N_("import {name} works ({detail})", name=name, detail=step.detail))


def _paddle(device: str, paddle: PaddleFacts) -> Finding:
    if paddle.error is not None:
        row = paddle.known or next((row.id for row in match(paddle.error)), "paddle-import")
        return known_finding("paddle", "wrong", N_("import paddle failed: {error}", error=paddle.error), row, device)
    if device != "cpu" and paddle.built_for != wheel_device(device):
        seen = N_(
            "Paddle {version} is built for {built_for}, not for {device}",
            version=paddle.version,
            built_for=paddle.built_for,
            device=device,
        )
        return Finding("paddle", "wrong", seen, framework_row(device).remedy)
    return Finding(
        "paddle", "ok", N_("Paddle {version}, built for {built_for}", version=paddle.version, built_for=paddle.built_for)
    )


def _cards(device: str, cards: Sequence[Step]) -> Iterator[Finding]:
    """One finding for each card that failed, and one for all that computed the right values."""
    for step in cards:
        if step.outcome != "ok":
            row = _row(step, _FAILED_CARDS[step.outcome])
            yield known_finding("card", "wrong", _format_failed(N_("{name}: a computation", name=step.name), step), row, device)
    if right := [step.name for step in cards if step.outcome == "ok"]:
        yield Finding("card", "ok", N_("the computation is right on {right}", right=", ".join(right)))


def _row(step: Step, otherwise: str) -> str:
    """The row of the remedies for what the step raised, else for what it printed, else the general one."""
    return next((row.id for row in (*match(step.message), *match(step.printed))), otherwise)


def _format_failed(what: str, step: Step) -> str:
    """The step that did not work, as a sentence with this beginning."""
    if step.outcome == "raised":
        return N_("{what} raised {detail}", what=what, detail=step.detail)
    if step.outcome == "crashed":
        return N_("{what} failed: {detail}", what=what, detail=step.detail)
    return N_("{what} hangs: {detail}", what=what, detail=step.detail)
