"""The pages of docs/tasks: the programs they speak of run, print what the pages show, and draw their pictures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

import anthesis

PAGES = sorted(page.stem for page in (ROOT / "docs" / "tasks").glob("*.md"))


def test_every_program_has_its_page() -> None:
    assert PAGES == sorted(program.stem for program in (ROOT / "examples" / "python").glob("*.py"))


@pytest.mark.parametrize("name", PAGES)
def test_page(name: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tasks" / f"{name}.md").read_text(encoding="utf-8")
    program = ROOT / "examples" / "python" / f"{name}.py"
    if "anthesis.nnterp" in program.read_text(encoding="utf-8"):
        pytest.importorskip("torch", reason="torch is not installed: make python TORCH=1")
    shown = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shown and all(block in program.read_text(encoding="utf-8") for block in shown)
    assert f"]({name}.png)" in page and (ROOT / "docs" / "tasks" / f"{name}.png").exists()

    try:
        import matplotlib  # noqa: F401
    except ImportError:
        picture: list[str] = []
    else:
        picture = [str(tmp_path / "picture.png")]
    environment = {**os.environ, "PYTHONPATH": str(Path(anthesis.__file__).parents[1]), "PYTHONIOENCODING": "utf-8", "MPLBACKEND": "agg"}
    done = subprocess.run([sys.executable, program, *picture], capture_output=True, encoding="utf-8", env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"```text\n{done.stdout}```\n" in page, done.stdout
    assert all(Path(file).read_bytes().startswith(b"\x89PNG") for file in picture)
