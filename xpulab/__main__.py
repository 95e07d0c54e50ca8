"""The command xpulab, and python -m xpulab."""

import signal


def main() -> None:
    """The entry point: until signals are handled, Ctrl-C ends this process at once, and not with a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from xpulab.cli import main as run

    run()


if __name__ == "__main__":
    main()
