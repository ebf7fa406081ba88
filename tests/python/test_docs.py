"""The examples of the pages about Python: run in order, and what they show is what comes out."""

from __future__ import annotations

import doctest
import os
import re
from pathlib import Path

import pytest
from conftest import ROOT

PAGES = ["docs/python.md", "docs/tracing.md"]


@pytest.mark.parametrize("page", PAGES)
def test_examples(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```pycon\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == text.count("```pycon") > 3
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page, page, 0)
    told: list[str] = []
    outcome = doctest.DocTestRunner(verbose=False).run(examples, out=told.append)
    assert outcome.attempted > 10 and outcome.failed == 0, "".join(told)
    assert os.getcwd() == str(tmp_path)


def test_nnterp_page() -> None:
    """Its Python runs."""
    pytest.importorskip("torch", reason="torch is not installed: make python TORCH=1")
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/nnterp.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})  # the project's own page


def test_readme(capsys: pytest.CaptureFixture[str]) -> None:
    """Its Python runs, and what its comments say is so."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        names: dict[str, object] = {}
        exec(block, names)  # the project's own page
        assert "freedom of peaceful assembly" in capsys.readouterr().out
        shape = re.search(r"^(.*\.shape)  # (\(.*?\))", block, re.MULTILINE)
        assert shape is not None and eval(shape[1], names) == eval(shape[2])
