"""python -m xpulab: the same as the command xpulab."""

from xpulab.cli import main

if __name__ == "__main__":
    main()
