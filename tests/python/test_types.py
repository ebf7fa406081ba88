"""The package's types: its own files under mypy --strict, with the stub of the extension module, and what its users' checkers see."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

from conftest import ROOT

import anthesis
from anthesis import _core

_USER = '''
import anthesis
import numpy as np

model: anthesis.Model = anthesis.load("folder", dtype=np.float32)
one: anthesis.Generated = model.generate("text", max_new_tokens=3)
many: list[anthesis.Generated] = model.generate(["a", "b"])
text: str = one.text
reveal_type(anthesis.values()[0].axes)
reveal_type(model.project_on_vocab([1.0]))
reveal_type(next(model.stream("x")).id)
model.collect(["a"], "logits", out="x", positions="all")
'''


def _mypy(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(folder), *arguments]
    environment = {**os.environ, "MYPYPATH": str(Path(anthesis.__file__).parents[1])}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment).stdout


def test_the_package_is_strictly_typed(tmp_path: Path) -> None:
    package = Path(anthesis.__file__).parent
    assert (package / "py.typed").exists() and (package / "_core.pyi").exists()
    output = _mypy(tmp_path, "-p", "anthesis")
    assert output.startswith("Success"), output


def test_what_a_user_sees(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(_USER)
    output = _mypy(tmp_path, "user.py")
    assert 'Revealed type is "str"' in output and 'Revealed type is "int"' in output
    assert re.search(r"Revealed type is .*float32|Revealed type is .*floating\[", output), output
    errors = [line for line in output.splitlines() if ": error:" in line]
    assert len(errors) == 1 and "positions" in errors[0], output


def test_the_stub_names_everything_that_is_there() -> None:
    stub = (Path(anthesis.__file__).parent / "_core.pyi").read_text()
    for name, thing in vars(_core).items():
        if not name.startswith("_"):
            assert re.search(rf"^(class|def) {name}\b|^{name}:", stub, re.MULTILINE), name
        if inspect.isclass(thing):
            for member in vars(thing):
                assert member.startswith("_") or f" {member}(" in stub, f"{name}.{member}"


def test_everything_public_is_documented() -> None:
    for name in anthesis.__all__:
        thing = getattr(anthesis, name)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        assert thing.__doc__, name
        if inspect.isclass(thing) and thing.__module__.startswith("anthesis.model"):
            for member, value in vars(thing).items():
                if not member.startswith("_") and callable(value):
                    assert value.__doc__, f"{name}.{member}"
