"""Creates the virtual environment .venv in the repository, for the device of this machine.

    python3 env/make_venv.py [--device auto|cpu|gpu|xpu|sim | --set cpu|gpu|xpu|book] [--packages common|formers] [--make-only]
        [-- PROGRAM ARGUMENTS]

It installs env/requirements/<device>.txt and the repository itself (editable), and writes .venv/xpulab.json last: what was
installed, and from which files. When that file is still valid, nothing changes. Otherwise the environment is created again,
and the reason is printed. An installation that stopped goes on with the step at which it stopped (.venv/xpulab-steps.json says
which): what was installed stays, and what was downloaded stays in the cache of the installer. A PROGRAM of
the environment, as xpulab or python, is then executed with its ARGUMENTS, unless --make-only is given. It is the installed one:
with python -m files of the current folder would be imported.

Before anything is downloaded the disks are looked at, and for the CUDA set the C library of the system.

`auto` takes the device that this machine is meant to have (xpulab.doctor.meant). Where Paddle cannot use that, nothing is
installed: an environment that is complete is used as it is; without one the exit code is 2, or 1 where the program is
`xpulab run`, which is red.

A device that is named must exist. --set installs a set without this check, for example to build an image on another machine.
--set book makes .venv-book, beside .venv and without the repository: what env/book.sh builds the pages with.
--packages formers makes .venv-formers, beside .venv: formers.txt in place of common.txt, for the chapters that say so in their
metadata (`environment`). The framework is the same.

XPULAB_VENV names another folder than .venv (a relative path starts at the repository): one that is new or empty, or an
environment that this repository made, finished or not. The content of any other folder stays as it is: exit code 2. Next to the
folder are its lock (.venv.lock: when two processes run at once, one creates the environment and the other waits) and the output
of the installer (.venv.log).

What it prints is in the language of XPULAB_LANG, from Python 3.10 on.

Only the standard library is used. Python 3.8 is enough to print which Python is missing.
Exit codes: 1 when a run is red before it starts, 2 when the environment could not be created, 128 + n when signal n stopped it.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "env" / "requirements"
sys.path.insert(0, str(ROOT))

from xpulab.devices import wheel_device  # noqa: E402
from xpulab.errors import InputError  # noqa: E402

if sys.version_info >= (3, 10):  # noqa: UP036 - the catalogue's reader needs it, too; before, all that is said is English
    from xpulab.messages import N_, choose, shown
else:

    def N_(text, **values):
        return text.format(**values) if values else text

    def shown(text):
        return text

    def choose(asked=None):
        pass


MARKER = "xpulab.json"
SUPPORTED = ((3, 12), (3, 11), (3, 10))
SUPPORTED_FOR = {"xpu": ((3, 10),)}  # Paddle builds its XPU wheels for this one only.
PROBE_SECONDS = 20
TERM_SECONDS = 5
BOOK = "book"
COMMON = "common"  # what .venv holds beside the framework
STEPS = "xpulab-steps.json"
LOG_LINES = 20  # shown of the log when an installation fails
FULL_GB = 0.5  # a disk with less free is said to be full when an installation fails


class Needs(NamedTuple):
    """installed, downloaded: GB of disk, in the environment and in each folder of the installer. minutes: for one step."""

    installed: float
    downloaded: float
    minutes: int


NEEDS = {"cpu": Needs(3, 0, 30), "gpu": Needs(11, 4, 120), "xpu": Needs(6, 1, 60), BOOK: Needs(1, 0, 30)}
"""That of cpu was measured (2.2 GB). The others are estimates: the CUDA set alone is 7 to 8 GB, of which cuDNN is a wheel of
571 MB and cuBLAS one of 393 MB; of the XPU wheel no size is known. downloaded counts for the cache and for temporary files."""
GLIBC = {"gpu": (2, 28)}
"""The tag of nvidia-cudnn-cu12 9.5.1.17 is manylinux_2_28: pip then says that there is no such version (Paddle#73235)."""
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class Red(InputError):
    """A run is red before anything is installed."""


class Stopped(BaseException):
    """A signal asked this process to stop; the only argument is the number of the signal."""


def main(arguments):
    catch_signals()
    os.environ.pop("PYTHONHOME", None)  # as in a venv's activate: its Python would not start
    own, command = split_arguments(arguments)
    options = parse(own)
    venv = (ROOT / (os.environ.get("XPULAB_VENV") or ".venv")).resolve()
    if options.set == BOOK or options.packages != COMMON:
        venv = sibling(venv, f"-{BOOK if options.set == BOOK else options.packages}")
    try:
        if sys.version_info < (3, 10):  # noqa: UP036 - xpulab.doctor, which detects the device, needs 3.10.
            python, _ = find_python(SUPPORTED, venv)
            os.execv(python, [python, "-IS", os.path.abspath(__file__), *arguments])
        choose()
        wanted = options.set or requirement_set(options.device, venv, run_arguments(command), options.packages)
        create_if_needed(venv, expected_state(wanted, options.packages), options.packages)
    except InputError as error:
        report(error)
        return 1 if isinstance(error, Red) else 2
    except (OSError, RuntimeError) as error:  # RuntimeError: nothing says where the home folder is
        report(
            N_(
                "{venv}: cannot be created: {error}. To use another folder set XPULAB_VENV=/another/folder.",
                venv=venv,
                error=error,
            )
        )
        return 2
    except Stopped as stopped:
        report(N_("stopped. To go on with {venv} where this run stopped, repeat the command.", venv=venv))
        return 128 + stopped.args[0]
    if command and not options.make_only:
        program = str(venv / "bin" / command[0])
        try:
            os.execv(program, [program, *command[1:]])
        except OSError as error:
            report(N_("{program}: {error}; remove {venv} and repeat", program=program, error=error.strerror, venv=venv))
            return 2
    return 0


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with an argument."""

    def error(self, message):
        report(f"{message}; {self.format_usage().strip()}")
        self.exit(2)


def parse(arguments):
    parser = Parser(
        prog="env/make_venv.py",
        usage="%(prog)s [-h] [--device DEVICE | --set SET] [--packages PACKAGES] [-- PROGRAM ARGUMENTS]",
        description="Creates the virtual environment .venv. Details: see the docstring of this file.",
    )
    parser.add_argument("--make-only", action="store_true", help="do not execute PROGRAM")
    parser.add_argument(
        "--packages", choices=(COMMON, "formers"), default=COMMON, help="beside the framework; formers: chapter 19"
    )
    which = parser.add_mutually_exclusive_group()
    devices = ("auto", "cpu", "gpu", "xpu", "sim")
    which.add_argument("--device", choices=devices, default="auto", help="a device of this machine; auto: detect it")
    which.add_argument("--set", choices=("cpu", "gpu", "xpu", BOOK), help="install this set without looking for the device")
    return parser.parse_args(arguments)


def create_if_needed(venv, state, packages=COMMON):
    """Creates the environment unless it already has this state. Raises InputError, with what to do, when that fails."""
    if not reason_to_create(venv, state):
        return
    require_own(venv)
    with locked(venv) as lock:
        reason = reason_to_create(venv, state)  # Again: another process may have created it while this one waited.
        if reason:
            python, version = find_python(SUPPORTED_FOR.get(state["device"], SUPPORTED), venv)
            report(
                N_(
                    "creating {venv} for {state} with Python {version}: {reason}",
                    venv=venv,
                    state=state["device"],
                    version=version,
                    reason=reason,
                )
            )
            framework = install(venv, state, python, version, lock, packages)
            write_marker(venv, dict(state, python=version, framework=framework))


def requirement_set(device, venv, run=None, packages=COMMON):
    """The requirement set for the device: cpu, gpu or xpu. Raises InputError when the machine lacks the device.

    run: the arguments of `xpulab run`, when that is executed later. For `auto` on a machine whose accelerator is lost it is the
    set of the environment when that is complete; otherwise Red is raised, or InputError where no run is asked for.
    """
    if wheel_device(device) == "cpu":
        return "cpu"
    from xpulab.doctor import meant
    from xpulab.doctor.detect import detect, require

    detection = detect()
    if device != "auto":
        require(device, detection)
        return device
    asked = option_in(run or [], "--expect")
    expect = meant.expected() if asked is None else meant.expected_count(asked)
    installed = installed_set(venv)
    wheels = [f"paddlepaddle-{installed}"] if installed in ("xpu", "gpu") else []
    try:
        return meant.auto(detection, wheels, expect)
    except meant.AcceleratorLost as error:
        if installed and not reason_to_create(venv, expected_state(installed, packages)):
            if run is None:
                report(error)
            return installed  # xpulab run says it, with all reports
        if run is None:
            raise
        red = N_("RED, nothing was installed")
        raise Red(f"{red}: {error}") from error


def installed_set(venv):
    """The set that an environment was made with; None when there is none, or it does not say."""
    try:
        device = json.loads((venv / MARKER).read_text())["device"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return device if device in ("cpu", "gpu", "xpu") else None


def run_arguments(command):
    """The arguments of `xpulab run` in a command; None when it is another one, or runs nothing."""
    if command[:2] != ["xpulab", "run"] or {"--list", "--help"} & set(command):
        return None
    return command[2:]


def expected_state(device, packages=COMMON):
    """The expected content of the marker of a complete environment, except for the Python version."""
    digest = hashlib.sha256()
    shared = () if device == BOOK else (REQUIREMENTS / f"{packages}.txt", ROOT / "pyproject.toml")
    for path in (REQUIREMENTS / f"{device}.txt", *shared):
        digest.update(path.read_bytes() + b"\0")
    return {"device": device, "sources": digest.hexdigest(), "repository": str(ROOT)}


def reason_to_create(venv, state):
    """The reason why the environment must be created, or None when it is ready."""
    if not venv.exists():
        return N_("it does not exist yet")
    try:
        marker = json.loads((venv / MARKER).read_text())
        changed = [key for key in state if marker[key] != state[key]]
        minor = marker["python"].rpartition(".")[0]
    except FileNotFoundError:
        return N_("the last installation was not finished")
    except (ValueError, KeyError, TypeError, AttributeError):
        return N_("its {MARKER} cannot be read", MARKER=MARKER)
    if "repository" in changed:
        return N_("it was created for {marker}", marker=marker["repository"])
    if "device" in changed:
        return N_("it contains the {marker} set, but {state} is requested", marker=marker["device"], state=state["device"])
    if "sources" in changed:
        return N_("env/requirements or pyproject.toml changed")
    # Compare the version too: after a system upgrade the link may lead to another Python, which has other package folders.
    if (version_of(venv / "bin" / "python") or "").rpartition(".")[0] != minor:
        return N_("its Python {minor} no longer runs", minor=minor)
    return None


def find_python(versions, venv):
    """Path and version of a Python of one of the versions: the running one if it fits, else the first on PATH that runs.

    Raises InputError that names what was found instead.
    """
    running = "{}.{}.{}".format(*sys.version_info)
    found = [running]
    if sys.version_info[:2] in versions:
        # Not sys.executable: that may belong to the environment that is about to be removed.
        base = Path(sys.base_prefix, "bin", "python{}.{}".format(*sys.version_info))
        return str(base if base.exists() else sys.executable), running
    folders = [Path(folder) for folder in os.get_exec_path() if Path(folder) != venv / "bin"]
    for minor in versions:
        for candidate in (folder / "python{}.{}".format(*minor) for folder in folders):
            version = version_of(candidate)
            if version and tuple(map(int, version.split(".")[:2])) == minor:
                return str(candidate), version
            if candidate.exists():
                found.append(N_("{candidate} (does not run)", candidate=candidate))
    wanted = [".".join(map(str, minor)) for minor in reversed(versions)]
    needs = " or ".join(filter(None, (", ".join(wanted[:-1]), wanted[-1])))
    raise InputError(
        N_("needs Python {needs}; found {found}. Install one of them and add it to PATH.", needs=needs, found=", ".join(found))
    )


def version_of(python):
    """The version of a Python ("3.11.7"), or None when it does not run: pyenv puts scripts on PATH that fail."""
    if not python.exists():
        return None
    printed = output_of([str(python), "-I", "-S", "-c", "import sys; print('{}.{}.{}'.format(*sys.version_info))"])
    last = (printed or "").rpartition("\n")[2]  # a wrapper of a site may print a banner first
    return last if re.fullmatch(r"\d+\.\d+\.\d+", last) else None


def output_of(command):
    """The output of a short command, or None when it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None


def require_own(venv):
    """Raises InputError for a folder with a content that no installation of this repository has put there.

    .venv in the repository and the two beside it are its own. Elsewhere one of two files says so at any moment: the steps from
    before the first one until the marker is there.
    """
    if venv in [sibling(ROOT / ".venv", suffix) for suffix in ("", "-book", "-formers")] or not venv.exists():
        return
    if {path.name for path in venv.iterdir()} <= {STEPS + ".new"}:
        return
    for name in (STEPS, MARKER, STEPS):  # another process may just have replaced one by the other, in either direction
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if json.loads((venv / name).read_text())["repository"] == str(ROOT):
                return
    raise InputError(
        N_(
            "{venv}: not an environment that {ROOT} has made, so it is not changed. Set XPULAB_VENV to a new folder, or remove "
            "this one.",
            venv=venv,
            ROOT=ROOT,
        )
    )


def remove_content(venv):
    """Removes the content of the folder and keeps the folder, which may be a mount point.

    The marker is removed first, so that a partly removed environment never counts as complete. The steps stay: they say whose
    folder it is.
    """
    for name in sorted((path.name for path in venv.iterdir() if path.name != STEPS), key=lambda name: name != MARKER):
        path = venv / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(str(path))
        else:
            path.unlink()


def install(venv, state, python, version, lock, packages=COMMON):
    """Creates the environment and installs the framework of the device, the packages and the repository into it.

    Goes on where an installation of the same state stopped. Returns the framework with its version, as installed.
    """
    device = state["device"]
    require_glibc(device)
    with tempfile.TemporaryDirectory(prefix="xpulab-requirements-") as folder:
        return install_steps(venv, state, python, version, lock, packages, Path(folder))


def install_steps(venv, state, python, version, lock, packages, written):
    """As install. written: a folder for requirement files."""
    device = state["device"]
    uv = shutil.which("uv")
    uv = uv if uv and output_of([uv, "--version"]) else None
    inside = str(venv / "bin" / "python")
    pinned = REQUIREMENTS / f"{packages}.txt"
    hashed = ["--require-hashes", "--no-deps", "-r"]  # the pins are complete, and each has the hashes of its files
    if uv:
        # Paddle's index also has other versions of packages that we take from the first index. Compiling the bytecode
        # here makes the import of paddle and paddlenlp three times as fast, also with PYTHONDONTWRITEBYTECODE.
        installer = [uv, "pip", "install", "--python", inside]
        installer += ["--index-strategy", "unsafe-best-match", "--compile-bytecode"]
        steps = [(N_("created"), [python, "-I", "-m", "venv", "--without-pip", str(venv)])]
    else:
        installer = [inside, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        steps = [
            (N_("created"), [python, "-I", "-m", "venv", str(venv)]),
            # It may be too old to build seqeval.
            (N_("updated pip"), [*installer, *hashed, select(pinned, "pip==", written / "pip.txt")]),
        ]
    framework = installed = None
    if device == BOOK:
        steps.append((N_("installed env/requirements/book.txt"), [*installer, *hashed, str(REQUIREMENTS / "book.txt")]))
    else:
        # The framework first: if its index is unreachable, pip fails at once instead of asking it for every other package.
        *index, framework = framework_arguments(device)
        exact = select(REQUIREMENTS / f"{device}.txt", framework, written / "framework.txt")
        installed = N_("installed {framework}", framework=framework)
        by_hash = ["--index-url", *index[1:], *hashed] if index else hashed
        if index and "--hash=" not in Path(exact).read_text():  # lock.sh did not reach its index
            by_hash = [*index, *hashed[1:]]
        steps += [
            (installed, [*installer, *by_hash, exact]),
            (N_("installed env/requirements/{packages}.txt", packages=packages), [*installer, *hashed, str(pinned)]),
        ]
        if index:  # after our pins, which it then leaves as they are
            constraints = select(pinned, "", written / "constraints.txt", False)
            needed = N_("installed what {framework} needs", framework=framework)
            steps.append((needed, [*installer, "-c", constraints, *index, framework]))
        steps += [
            (N_("installed xpulab"), [*installer, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)]),
        ]
    progress = dict(state, python=version, installer="uv" if uv else "pip")
    done = steps_done(venv, progress)
    if done:
        report(N_("goes on after: {done}", done=", ".join(shown(text) for text, _ in steps[:done])))
        remove_incomplete(venv)
    elif venv.exists():
        write(venv / STEPS, dict(progress, done=0))
        remove_content(venv)
    disks = disks_of(venv, uv)
    require_room(disks, NEEDS[device], size_gb(venv) if done else 0)
    venv.mkdir(exist_ok=True)
    write(venv / STEPS, dict(progress, done=done))
    log = sibling(venv, ".log")
    report(N_("installing with {value}; its output goes to {log}", value="uv" if uv else "pip", log=log))
    with open(str(log), "wb", opener=no_link) as out:
        for number, (text, command) in enumerate(steps[done:], done + 1):
            started = time.monotonic()
            code = run_step(command, out, lock, NEEDS[device].minutes * 60)
            if code != 0:
                raise InputError(format_failure(command, code, log, NEEDS[device].minutes, disks))
            write(venv / STEPS, dict(progress, done=number))
            seconds = time.monotonic() - started
            taken = installed_framework(inside, framework) if text == installed else None
            report(f"{shown(text)} ({seconds:.1f} s)" + (f": {taken}" if taken else ""))
    return framework and installed_framework(inside, framework)


def installed_framework(python, requirement):
    """ "paddlepaddle-xpu 3.3.0": what was taken for a requirement that allows several versions; None when it is not there."""
    name = re.match(r"[\w-]+", requirement).group()
    source = f"from importlib.metadata import version; print({name!r}, version({name!r}))"
    return output_of([python, "-I", "-c", source])


def steps_done(venv, progress):
    """How many steps of the same installation are done, 0 when there is none that can go on."""
    try:
        before = json.loads((venv / STEPS).read_text())
        done = before.pop("done")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0
    return done if before == progress and version_of(venv / "bin" / "python") == progress["python"] else 0


def remove_incomplete(venv):
    """Removes the metadata of packages of which files are missing or short, so that they are installed again."""
    for info in venv.glob("lib/python*/site-packages/*.dist-info"):
        try:
            with open(str(info / "RECORD"), newline="") as record:
                sizes = {info.parent / row[0]: int(row[2]) for row in csv.reader(record) if row[2]}
            is_complete = all(path.stat().st_size == size for path, size in sizes.items())
        except (OSError, ValueError, IndexError):
            is_complete = False
        if not is_complete:
            shutil.rmtree(str(info))


def require_glibc(device):
    """Raises InputError when the C library of the system is older than the wheels of the set need."""
    needed, found = GLIBC.get(device), os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else None
    numbers = re.match(r"glibc (\d+)\.(\d+)", found or "")
    if needed and not (numbers and tuple(map(int, numbers.groups())) >= needed):
        raise InputError(
            N_(
                "the {device} set needs glibc {needed} or newer (cuDNN), this system has {found}: take Debian 10, Ubuntu "
                "20.04, RHEL 8 or newer, or a container of one of them. Nothing was downloaded.",
                device=device,
                needed=".".join(map(str, needed)),
                found=found or "none",
            )
        )


def disks_of(venv, uv):
    """What an installation fills: for each a folder that exists, the variable that names another one, the number of Needs."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    variable = "UV_CACHE_DIR" if uv else "PIP_CACHE_DIR"
    cache = Path(os.environ.get(variable) or caches / ("uv" if uv else "pip"))
    filled = [(venv.parent, "XPULAB_VENV", "installed"), (cache, variable, "downloaded")]
    if not uv:  # pip keeps in its cache what it downloads into temporary files
        filled.append((Path(tempfile.gettempdir()), "TMPDIR", "downloaded"))
    return [(next(path for path in (folder, *folder.parents) if path.exists()), *rest) for folder, *rest in filled]


def require_room(disks, needs, there):
    """Raises InputError when a disk has too little room. there: GB that an installation which goes on has filled."""
    by_disk = {}
    for folder, variable, kind in disks:
        gigabytes = max(0, needs.installed - there) if kind == "installed" else 0 if there else needs.downloaded
        by_disk.setdefault(folder.stat().st_dev, []).append((folder, variable, gigabytes))
    for filled in by_disk.values():
        folder, needed = filled[0][0], sum(gigabytes for _, _, gigabytes in filled)
        free = free_gb(folder)
        if free < needed:
            raise InputError(
                N_(
                    "{folder}: needs {needed} GB, {free} GB are free. Set {variables} to a folder on another disk. Nothing was "
                    "downloaded.",
                    folder=folder,
                    needed=f"{needed:.3g}",
                    free=f"{free:.1f}",
                    variables=" or ".join(variable for _, variable, gigabytes in filled if gigabytes),
                )
            )


def free_gb(folder):
    return shutil.disk_usage(str(folder)).free / 1e9


def size_gb(folder):
    return sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(str(folder)) for name in names) / 1e9


def framework_arguments(device):
    """What the set of the device has beside common.txt, as arguments of an installer: perhaps an index, the framework."""
    lines = (REQUIREMENTS / f"{device}.txt").read_text().splitlines()
    return [word for line in lines if line and line[0] != "#" for word in line.split() if not word.startswith("--hash=")]


def select(requirements, start, file, with_hashes=True):
    """Writes the lines of a requirement file that start so into another one; returns its path.

    Constraints must have no hashes: pip would then want some of everything.
    """
    lines = [line for line in requirements.read_text().splitlines() if line.startswith(start)]
    file.write_text("\n".join(line if with_hashes else line.partition(" --hash=")[0] for line in lines) + "\n")
    return str(file)


def run_step(command, out, lock, seconds):
    """Runs a command with its output in the file out. Returns its exit code, or None when it takes longer than so many seconds.

    All its processes end with this call. They inherit the lock: if this process is killed, the next one waits until the
    orphans have ended instead of installing into the same folder.
    """
    child = None
    # A signal between fork and assignment would lose the child, so signals are blocked until it is known.
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
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child and child.returncode is None:
            terminate(child)


def terminate(child):
    """Terminates the process group of a child: SIGTERM, and SIGKILL after TERM_SECONDS.

    Does not use child.wait(): its lock stays locked when the exception of a signal interrupted it.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    until = time.monotonic() + TERM_SECONDS
    while not has_ended(child.pid) and time.monotonic() < until:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    while not has_ended(child.pid):
        time.sleep(0.02)


def has_ended(pid):
    """Whether this child has ended. Collects its exit status, so that no zombie remains."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def format_failure(command, code, log, minutes, disks):
    """The error message for a step that failed: how, the end of its output, disks that are full, and how to go on."""
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    how = (
        N_("did not end within {minutes} minutes", minutes=minutes)
        if code is None
        else N_("failed with exit code {code}", code=code)
    )
    full = [(folder, variable) for folder, variable, _ in disks if free_gb(folder) < FULL_GB]
    return "\n".join(
        [
            N_("{command}: {how}. The end of {log}:", command=" ".join(command), how=how, log=log),
            *(f"    {line}" for line in lines),
            *(
                N_("the disk of {folder} is full: free some, or set {variable}", folder=folder, variable=variable)
                for folder, variable in full
            ),
            N_("What was installed and downloaded stays. To go on with this step, repeat the command."),
        ]
    )


def write_marker(venv, state):
    """Marks the environment as complete."""
    write(venv / MARKER, state)
    (venv / STEPS).unlink()


def write(path, content):
    """Writes JSON. The rename makes the file appear atomically."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(content, indent=1) + "\n")
    fresh.rename(path)


@contextlib.contextmanager
def locked(venv):
    """Holds the lock of the environment, after waiting for a process that has it. Yields the open lock file."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    path = sibling(venv, ".lock")
    with open(str(path), "a", opener=no_link) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(N_("waiting for another process that is creating {venv}", venv=venv))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def no_link(path, flags):
    """Opens a file as open() does, but no link: beside a folder in /tmp anybody may have put one."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def sibling(venv, suffix):
    return venv.with_name(venv.name + suffix)


def catch_signals():
    """Makes the first of these signals raise Stopped and ignores all later ones, so that they cannot interrupt the cleanup."""

    def stop(number, _frame):
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    for each in SIGNALS:
        if signal.getsignal(each) != signal.SIG_IGN:  # As under nohup.
            signal.signal(each, stop)


def split_arguments(arguments):
    """Our own arguments, and those after "--"."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def option_in(command, name):
    """The value of an option among the arguments of a command, the last one; None when it is not given."""
    found = None
    for argument, following in zip(command, [*command[1:], None], strict=False):
        if argument == name:
            found = following
        elif argument.startswith(name + "="):
            found = argument.partition("=")[2]
    return found


def report(message):
    try:
        print(f"xpulab: {shown(str(message))}", file=sys.stderr, flush=True)
    except OSError:  # it cannot be read any more; Python would write again what is left, and change the exit code
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
