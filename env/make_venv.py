"""Makes the virtual environment that everything runs in: .venv in the repository, for the device of this machine.

    python3 env/make_venv.py [--device auto|cpu|gpu|xpu|sim | --set cpu|gpu|xpu] [-- ARGUMENTS]

It installs env/requirements/<device>.txt and the repository itself, editable, and writes .venv/xpulab.json last: what was
installed, from what. When that still holds, nothing is touched. Otherwise it says why, and makes the environment anew:
so an installation that was interrupted is mended by the next run. With ARGUMENTS it then becomes that environment's
Python, run with them.

A named device must be there; --set installs a set whatever is there, as for an image that is built on another machine.

XPULAB_VENV names another folder than .venv (a relative one counts from the repository). Beside the folder stand its
lock (.venv.lock: of two callers at once one makes it and the other waits) and the installer's output (.venv.log).

Only the standard library is used, and any Python from 3.8 on gets far enough to say what is missing.
Exit codes: 2 when it could not be made, 128 + n when signal n stopped it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "env" / "requirements"
sys.path.insert(0, str(ROOT))

from xpulab.devices import wheel_device  # noqa: E402
from xpulab.errors import InputError  # noqa: E402

MARKER = "xpulab.json"
SUPPORTED = ((3, 12), (3, 11), (3, 10))
SUPPORTED_FOR = {"xpu": ((3, 10),)}  # Paddle builds its XPU wheels for this one only.
INSTALL_SECONDS = 30 * 60
PROBE_SECONDS = 20
NEEDED_GB = 3
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """A signal asked this process to end; the only argument is the signal's number."""


def main(arguments):
    catch_signals()
    own, command = split(arguments)
    options = parse(own)
    venv = (ROOT / (os.environ.get("XPULAB_VENV") or ".venv")).resolve()
    try:
        if sys.version_info < (3, 10):  # noqa: UP036 - xpulab.doctor, which finds the device, needs it.
            python, _ = find_python(SUPPORTED, venv)
            os.execv(python, [python, "-IS", os.path.abspath(__file__), *arguments])
        make_if_needed(venv, state_for(options.set or set_for(options.device)))
    except InputError as error:
        say(error)
        return 2
    except OSError as error:
        say(f"{venv}: cannot be made: {error}. XPULAB_VENV=/another/folder puts it elsewhere.")
        return 2
    except Stopped as stopped:
        say(f"stopped. The next run makes {venv} anew if it is not complete.")
        return 128 + stopped.args[0]
    if command:
        python = str(venv / "bin" / "python")
        os.execv(python, [python, *command])
    return 0


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="env/make_venv.py",
        usage="%(prog)s [-h] [--device DEVICE | --set SET] [-- ARGUMENTS]",
        description="Makes the virtual environment that everything runs in. Details: the head of this file.",
    )
    which = parser.add_mutually_exclusive_group()
    devices = ("auto", "cpu", "gpu", "xpu", "sim")
    which.add_argument("--device", choices=devices, default="auto", help="must be there; auto: what this machine has")
    which.add_argument("--set", choices=("cpu", "gpu", "xpu"), help="install this set, whatever this machine has")
    return parser.parse_args(arguments)


def make_if_needed(venv, state):
    """Makes the environment unless it is already as state says. Raises InputError with what to do when that fails."""
    if not why_make(venv, state):
        return
    with locked(venv) as lock:
        reason = why_make(venv, state)  # Again: whoever held the lock may have made it.
        if reason:
            python, version = find_python(SUPPORTED_FOR.get(state["device"], SUPPORTED), venv)
            say(f"making {venv} for {state['device']} with Python {version}: {reason}")
            empty(venv)
            install(venv, state["device"], python, lock)
            write_marker(venv, dict(state, python=version))


def set_for(device):
    """Which requirement set serves the device: cpu, gpu or xpu. Raises InputError when there is no such device."""
    if wheel_device(device) == "cpu":
        return "cpu"
    from xpulab.doctor.detect import detect, require

    detection = detect()
    if device == "auto":
        return detection.device
    require(device, detection)
    return device


def state_for(device):
    """What the marker of a finished environment must say, apart from the Python version."""
    digest = hashlib.sha256()
    for path in (REQUIREMENTS / f"{device}.txt", REQUIREMENTS / "common.txt", ROOT / "pyproject.toml"):
        digest.update(path.read_bytes() + b"\0")
    return {"device": device, "sources": digest.hexdigest(), "repository": str(ROOT)}


def why_make(venv, state):
    """The reason why the environment must be made, or None when it is ready."""
    if not venv.exists():
        return "there is none yet"
    try:
        marker = json.loads((venv / MARKER).read_text())
        changed = [key for key in state if marker[key] != state[key]]
        minor = marker["python"].rpartition(".")[0]
    except FileNotFoundError:
        return "the last installation was not finished"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"its {MARKER} cannot be read"
    if "repository" in changed:
        return f"it was made for {marker['repository']}"
    if "device" in changed:
        return f"it holds the {marker['device']} set and {state['device']} is wanted now"
    if "sources" in changed:
        return "env/requirements or pyproject.toml changed"
    # The version too: a system upgrade may put another Python behind the link, which looks for packages elsewhere.
    if (version_of(venv / "bin" / "python") or "").rpartition(".")[0] != minor:
        return f"its Python {minor} does not run any more"
    return None


def find_python(versions, venv):
    """Path and version of a Python of one of the versions: the one that runs this, else the first on PATH that runs.

    Raises InputError, naming what was found instead.
    """
    running = "{}.{}.{}".format(*sys.version_info)
    found = [running]
    if sys.version_info[:2] in versions:
        # Not sys.executable: that may be the very environment that is about to be removed.
        base = Path(sys.base_prefix, "bin", "python{}.{}".format(*sys.version_info))
        return str(base if base.exists() else sys.executable), running
    folders = [Path(folder) for folder in os.get_exec_path() if Path(folder) != venv / "bin"]
    for minor in versions:
        for candidate in (folder / "python{}.{}".format(*minor) for folder in folders):
            version = version_of(candidate)
            if version and tuple(map(int, version.split(".")[:2])) == minor:
                return str(candidate), version
            if candidate.exists():
                found.append(f"{candidate} (does not run)")
    wanted = [".".join(map(str, minor)) for minor in reversed(versions)]
    needs = " or ".join(filter(None, (", ".join(wanted[:-1]), wanted[-1])))
    raise InputError(f"needs Python {needs}; found {', '.join(found)}. Install one of them and put it on PATH.")


def version_of(python):
    """The version of a Python ("3.11.7"), or None when it does not run: pyenv puts names on PATH that fail."""
    if not python.exists():
        return None
    return output_of([str(python), "-I", "-S", "-c", "import sys; print('{}.{}.{}'.format(*sys.version_info))"])


def output_of(command):
    """What a short command prints, or None when it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None


def empty(venv):
    """Removes what is in the folder, and keeps the folder: it may be a mount point.

    The marker goes first, so that nobody takes a half-removed environment for a finished one, and pyvenv.cfg last, so
    that an interrupted removal still looks like what it is. Raises InputError for a folder that is no environment.
    """
    if not venv.exists():
        return
    names = {path.name for path in venv.iterdir()}
    if names and "pyvenv.cfg" not in names and venv != (ROOT / ".venv").resolve():
        raise InputError(f"{venv}: not a virtual environment, so it is left alone. Name another folder in XPULAB_VENV.")
    for name in sorted(names, key=lambda name: (name == "pyvenv.cfg", name != MARKER)):
        path = venv / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(str(path))
        else:
            path.unlink()


def install(venv, device, python, lock):
    """Creates the environment and installs the device's set and the repository into it."""
    free = shutil.disk_usage(str(venv.parent)).free / 1e9
    if free < NEEDED_GB:
        raise InputError(f"{venv}: needs {NEEDED_GB} GB, {free:.1f} GB are free. XPULAB_VENV names another folder.")
    uv = shutil.which("uv")
    uv = uv if uv and output_of([uv, "--version"]) else None
    inside = str(venv / "bin" / "python")
    common = str(REQUIREMENTS / "common.txt")
    if uv:
        # Paddle's index comes second, and holds other versions of packages that we take from the first. Compiled once
        # here, paddle and paddlenlp are imported in a third of the time, wherever PYTHONDONTWRITEBYTECODE is set too.
        installer = [uv, "pip", "install", "--python", inside]
        installer += ["--index-strategy", "unsafe-best-match", "--compile-bytecode"]
        steps = [("created", [python, "-I", "-m", "venv", "--without-pip", str(venv)])]
    else:
        installer = [inside, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        steps = [
            ("created", [python, "-I", "-m", "venv", str(venv)]),
            ("updated pip", [*installer, "-c", common, "pip"]),  # It may be too old to build seqeval.
        ]
    # The framework first: when its index cannot be reached, pip would ask it for each of the other packages too.
    framework = own_lines(device)
    steps += [
        (f"installed {framework[-1]}", [*installer, "-c", common, *framework]),
        ("installed env/requirements/common.txt", [*installer, "-r", common]),
        ("installed xpulab", [*installer, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)]),
    ]
    log = beside(venv, ".log")
    say(f"installing with {'uv' if uv else 'pip'}; its output goes to {log}")
    with open(str(log), "wb") as out:
        for done, command in steps:
            started = time.monotonic()
            code = call(command, out, lock)
            if code != 0:
                raise InputError(failure(command, code, log))
            say(f"{done} ({time.monotonic() - started:.1f} s)")


def own_lines(device):
    """What the device's set adds to common.txt, as arguments of an installer: an index perhaps, and the framework."""
    lines = (REQUIREMENTS / f"{device}.txt").read_text().splitlines()
    return [word for line in lines if line and line[0] != "#" and line != "-r common.txt" for word in line.split()]


def call(command, out, lock):
    """Runs a command to its end, output into the file out; its exit code, or None when it took too long.

    Nothing of it outlives this call. It inherits the lock: should this process be killed outright, the next one waits
    until the orphan is done instead of installing into the same folder.
    """
    child = None
    # A signal between the fork and the assignment would lose the child: signals wait until it is known.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        try:
            child = subprocess.Popen(
                command,
                cwd=str(ROOT),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[lock.fileno()],
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return child.wait(INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child and child.returncode is None:
            end(child)


def end(child):
    """Ends a child's whole process group: politely, after 5 s by force.

    Waits without child.wait(), whose lock stays taken when a signal's exception left it in the wrong moment.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    until = time.monotonic() + 5
    while not reaped(child.pid) and time.monotonic() < until:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    while not reaped(child.pid):
        time.sleep(0.02)


def reaped(pid):
    """Whether this child has ended; its exit status is taken, so that nothing of it is left."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def failure(command, code, log):
    """What to tell about a step that failed."""
    lines = log.read_text(errors="replace").splitlines()[-20:]
    how = f"did not end within {INSTALL_SECONDS // 60} minutes" if code is None else f"failed with exit code {code}"
    return "\n".join([f"{' '.join(command)}: {how}. The end of {log}:", *(f"    {line}" for line in lines)])


def write_marker(venv, state):
    """Declares the environment finished; the rename makes it all or nothing."""
    fresh = venv / (MARKER + ".new")
    fresh.write_text(json.dumps(state, indent=1) + "\n")
    fresh.rename(venv / MARKER)


@contextlib.contextmanager
def locked(venv):
    """Holds the environment's lock, after waiting for whoever has it. Gives the open lock file."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    path = beside(venv, ".lock")
    with open(str(path), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that is making {venv}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def beside(venv, suffix):
    return venv.with_name(venv.name + suffix)


def catch_signals():
    """Makes each signal raise Stopped, once: nothing must disturb the clean-up after the first."""

    def stop(number, _frame):
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    for each in SIGNALS:
        if signal.getsignal(each) != signal.SIG_IGN:  # As under nohup.
            signal.signal(each, stop)


def split(arguments):
    """Our own arguments, and those behind "--"."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def say(message):
    print(f"xpulab: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
