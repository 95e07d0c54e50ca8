"""The kernels of all rounds: one fork server for hours, replaced when it has ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from xpulab import warm
from xpulab.harness.run import kernel_environment

_ANSWER_SECONDS = 30.0
"""A fork server that has imported everything forks within milliseconds."""


class Kernels:
    """Gives each round the variables of its kernels; ends the fork server at the end of its block.

    started: how many fork servers there were; 0 where kernels start cold.
    """

    def __init__(self, device: str, cold: bool) -> None:
        self.started = 0
        self._device, self._cold = device, cold
        self._server = ExitStack()
        self._environment: Mapping[str, str] | None = None

    @contextmanager
    def of_round(self) -> Iterator[Mapping[str, str]]:
        """The variables, in the form of kernel_environment; raises what that raises."""
        if self._environment is None or not _answers(self._environment):
            self._server.close()
            self._environment = self._server.enter_context(kernel_environment(self._device, self._cold))
            self.started += warm.ADDRESS in self._environment
        yield self._environment

    def __enter__(self) -> Kernels:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.close()


def _answers(environment: Mapping[str, str]) -> bool:
    """Whether kernels can be started with these variables: cold ones always can."""
    if warm.ADDRESS not in environment:
        return True
    try:
        return warm.answers(environment[warm.ADDRESS], _ANSWER_SECONDS)
    except (warm.ForkServerGone, TimeoutError):
        return False
