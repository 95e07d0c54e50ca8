"""Write data/take_home/configurations and the table of docs/choose.md, computed by xpulab.chapters.shared.configurations.

.venv/bin/python tools/make_configurations.py
"""

from __future__ import annotations

import json

from xpulab import files
from xpulab.chapters.shared import configurations

BEGIN, END = "<!-- table -->\n", "<!-- /table -->"


def texts() -> dict[str, str]:
    """What each file must hold, by its path in the repository."""
    found = {
        f"data/take_home/configurations/{fit.name}.json": json.dumps(fit.arguments(), indent=2) + "\n"
        for fit in configurations.all_fits()
    }
    page = (files.ROOT / "docs" / "choose.md").read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    found["docs/choose.md"] = f"{before}{BEGIN}{configurations.format_table()}{END}{after}"
    return found


if __name__ == "__main__":
    for name, text in texts().items():
        path = files.ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
