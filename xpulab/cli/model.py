"""`xpulab model`: a pretrained model, prepared in the user's cache."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli import chosen
from xpulab.cli.app import command
from xpulab.errors import InputError


@command()
def model(
    name: Annotated[str | None, typer.Argument(help="A release of --list, or the folder of a model.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show the releases that can be fetched.")] = False,
    optional: Annotated[
        bool, typer.Option("--optional", help="One line and exit code 0 when it cannot be had; nothing when it is prepared.")
    ] = False,
) -> None:
    """Prepare a pretrained model in the user's cache, verified and converted for PaddleNLP, and print its folder.

    A folder is refused whose weights are missing, NaN, infinite, pointers of Git LFS, parts without an index, an adapter alone,
    or tied and different.
    """
    from xpulab.pretrained.paddle_class import require_complete
    from xpulab.pretrained.prepare import find, prepare
    from xpulab.pretrained.releases import RELEASES
    from xpulab.pretrained.torch_folder import require_sound

    if show_list:
        chosen.alone("--list", name=name, optional=optional)
    if show_list or name is None:
        for release in RELEASES.values():
            state = "prepared" if find(release.name) else f"{release.size_mb} MB to download"
            print(f"{release.name}  {release.title}, {release.license}, {state}\n  {release.origin}")
    elif optional and name in RELEASES:
        if find(name):
            return
        release = RELEASES[name]
        print(f"xpulab: fetching {release.title} once ({release.size_mb} MB): ", end="", file=sys.stderr, flush=True)
        try:
            print(f"prepared in {prepare(name)}", file=sys.stderr)
        except InputError as error:
            print(f"not possible, goes on without it: {error}", file=sys.stderr)
    else:
        folder = prepare(name)
        if name not in RELEASES and folder == Path(name):  # one of PaddleNLP, which nothing was converted of
            require_complete(folder)
            require_sound(folder)
        print(folder)
