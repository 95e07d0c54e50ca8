"""Kill `xpulab run` at random moments, resume it, and see that nothing is lost and nothing stays behind.

    python tools/benchmarks/kill_and_resume.py --moments 50 -- 09_collectives 05_memory --device sim --cards 2 --level smoke

What follows -- are arguments of `xpulab run`. Each round starts a run, kills it with SIGKILL at a random moment, kills every
third one again while it resumes, and resumes it to its end. It reports how long the processes of the killed run lived, what
stayed in the folder for temporary files and in /dev/shm, and whether the last result has the checks and outcomes of a run
that was not interrupted. Exit code 1 when anything differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
RUN_SECONDS = 900
GONE_SECONDS = 20.0
"""How long the processes of a killed run are watched."""
_POLL_SECONDS = 0.05
_OWNER = re.compile(r"paddle_(\d+)_|xpulab-sim-\d+-[0-9a-f]*-\d+-(\d+)-")


@dataclass
class Round:
    """One run. kills: seconds after each start. lived: how long the killed processes lived, in seconds.

    left: what stayed after a kill, removed by the next start. problems: what is wrong at the end.
    """

    kills: list[float] = field(default_factory=list)
    lived: list[float] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    resumed_notebooks: int = 0


class Runs:
    """Starts runs whose temporary files, and so whose processes, are known by one folder of their own."""

    def __init__(self, arguments: list[str], scratch: Path) -> None:
        self._arguments, self.temporary, self._log = arguments, scratch / "tmp", scratch / "log"
        self.temporary.mkdir()
        self._environment = {**os.environ, "TMPDIR": str(self.temporary)}
        self.pids: set[int] = set()

    def run(self, out: Path, *more: str) -> int:
        """Run to the end; returns the exit code."""
        with self._started(out, *more) as process:
            return process.wait(RUN_SECONDS)

    def kill_after(self, seconds: float, out: Path, *more: str) -> bool:
        """Kill a run after so many seconds; returns whether it was still running then."""
        with self._started(out, *more) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                return False
            self.pids |= set(self.processes())
            process.send_signal(signal.SIGKILL)
            process.wait()
        return True

    def processes(self) -> list[int]:
        """The ids of all processes that inherited the folder for temporary files."""
        start = os.fsencode(f"TMPDIR={self.temporary}")
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if any(entry.startswith(start) for entry in (folder / "environ").read_bytes().split(b"\0")):
                    found.append(int(folder.name))
        return found

    def seconds_until_gone(self) -> float:
        """Wait until no process is left; infinity when one stays."""
        started = time.monotonic()
        while (waited := time.monotonic() - started) < GONE_SECONDS:
            if not self.processes():
                return waited
            time.sleep(_POLL_SECONDS)
        return float("inf")

    def left(self) -> list[str]:
        """Temporary files, and shared memory of the processes that were killed."""
        segments = [path for path in SHARED_MEMORY.iterdir() if (found := _OWNER.match(path.name)) and self._owns(found)]
        return [str(path) for path in [*self.temporary.iterdir(), *segments]]

    def printed(self) -> str:
        """What the last run printed."""
        return self._log.read_text(errors="replace")

    def _owns(self, found: re.Match[str]) -> bool:
        return int(found[1] or found[2]) in self.pids

    @contextlib.contextmanager
    def _started(self, out: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
        """A run, which is killed when this program is interrupted."""
        command = [sys.executable, "-m", "xpulab", "run", *self._arguments, "--out", str(out), *more]
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=50, help="how many runs are killed")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--keep", type=Path, help="copy the folder of a round with a problem here")
    parser.add_argument("arguments", nargs="*", help="of xpulab run, after --")
    asked = parser.parse_args()
    # A short path: runs keep temporary files elsewhere where sockets would have too long ones.
    with tempfile.TemporaryDirectory(prefix="kill-", dir="/tmp", ignore_cleanup_errors=True) as scratch:
        return soak(asked, Path(scratch))


def soak(asked: argparse.Namespace, scratch: Path) -> int:
    runs, moments = Runs(asked.arguments, scratch), random.Random(asked.seed)
    started = time.monotonic()
    code = runs.run(scratch / "whole")
    duration = time.monotonic() - started
    wanted = checks_in(scratch / "whole")
    print(f"without a kill: {duration:.1f} s, exit code {code}, {len(wanted)} checks", flush=True)
    rounds = []
    for number in range(asked.moments):
        out = scratch / f"round-{number}"
        this = one_round(runs, out, duration, moments, again=number % 3 == 2)
        this.problems += differences(out, wanted, code)
        rounds.append(this)
        kills = ", ".join(f"{kill:.2f} s" for kill in this.kills)
        lived = ", ".join(f"{seconds:.2f} s" for seconds in this.lived)
        print(
            f"{number:>3}: killed after {kills}; processes gone after {lived}; {this.resumed_notebooks} notebooks joined; "
            f"left: {', '.join(this.left) or 'nothing'}; {'; '.join(this.problems) or 'complete'}",
            flush=True,
        )
        if this.problems:
            print(runs.printed(), flush=True)
            if asked.keep:
                shutil.copytree(out, asked.keep / out.name, dirs_exist_ok=True)
        shutil.rmtree(out, ignore_errors=True)
    return summarize(rounds)


def one_round(runs: Runs, out: Path, duration: float, moments: random.Random, again: bool) -> Round:
    this = Round()
    for more in [(), ("--resume",)] if again else [()]:
        longest = duration
        while not runs.kill_after(seconds := moments.uniform(0.0, longest), out, *more):
            longest = seconds  # it had ended
            if more:  # what is left to resume may be nothing
                break
            shutil.rmtree(out)
        else:
            this.kills.append(seconds)
            this.lived.append(runs.seconds_until_gone())
            this.left += runs.left()
    runs.run(out, "--resume")
    if runs.seconds_until_gone() > 0.5:
        this.problems.append("processes stay after the last run")
    this.problems += [f"stays: {path}" for path in runs.left()]
    this.problems += [f"stays: {path.relative_to(out)}" for path in out.rglob("*") if unwanted(path)]
    this.resumed_notebooks = sum(resumed(path) for path in (out / "notebooks").glob("*.ipynb"))
    return this


def unwanted(path: Path) -> bool:
    return path.name == "rest" or path.name.endswith((".new", ".part.ipynb", ".records.json"))


def resumed(executed: Path) -> bool:
    try:
        metadata = json.loads(executed.read_text(encoding="utf-8"))["metadata"]
    except ValueError:  # cut off by a kill, which the result shows too
        return False
    return metadata.get("xpulab", {}).get("run", {}).get("resumed", 0) > 0


def checks_in(out: Path) -> dict[str, str]:
    """The outcome of each notebook and each check in a result.json."""
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    found = {"the run": result["outcome"]}
    for notebook in result["notebooks"]:
        found[notebook["name"]] = f"{notebook['outcome']} {notebook['reason'] or ''}"
        found |= {check["name"]: check["outcome"] for check in notebook["checks"]}
    return found


def differences(out: Path, wanted: dict[str, str], code: int) -> list[str]:
    try:
        found = checks_in(out)
    except (OSError, ValueError) as error:
        return [f"no result: {error!r}"]
    names = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]
    return [f"{name}: {found.get(name)}, not {wanted.get(name)}" for name in names]


def summarize(rounds: list[Round]) -> int:
    kills = [kill for each in rounds for kill in each.kills]
    lived = [seconds for each in rounds for seconds in each.lived]
    bad = [each for each in rounds if each.problems]
    print(
        f"{len(rounds)} runs, {len(kills)} kills: {len(rounds) - len(bad)} complete, {len(bad)} not; processes were gone after "
        f"{max(lived, default=0.0):.2f} s at most; {sum(bool(each.left) for each in rounds)} runs left something until the "
        f"next start; {sum(each.resumed_notebooks for each in rounds)} notebooks were joined"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
