"""What importing the package costs, and what it brings."""

from __future__ import annotations

import subprocess
import sys

import anthesis

_CHILD = """
import sys, time
start = time.perf_counter()
import anthesis
print(time.perf_counter() - start)
print(*(name for name in ("numpy", "torch", "transformers") if name in sys.modules))
"""


def _import() -> tuple[float, str]:
    output = subprocess.run([sys.executable, "-c", _CHILD], capture_output=True, text=True, check=True).stdout.splitlines()
    return float(output[0]), output[1]


def test_import_is_quick_and_needs_nothing() -> None:
    """Below 150 ms, the quickest of a few: a busy machine makes any one of them late."""
    times = []
    for _ in range(5):
        seconds, modules = _import()
        assert modules == ""
        times.append(seconds)
    assert min(times) < 0.15


def test_every_name_is_there(model: anthesis.Model) -> None:
    """Also once the modules behind them are loaded: a module of the package's own hides no function."""
    assert model
    for name in anthesis.__all__:
        assert not isinstance(getattr(anthesis, name), type(anthesis)), name
    assert set(anthesis._HOMES) < set(anthesis.__all__)
    assert dir(anthesis) == sorted(anthesis.__all__)


def test_unknown_names_are_told() -> None:
    try:
        anthesis.lode
    except AttributeError as error:
        assert "lode" in str(error)
    else:
        raise AssertionError


def test_errors_are_what_python_expects() -> None:
    assert issubclass(anthesis.InvalidArgument, ValueError)
    for error in (anthesis.LoadError, anthesis.ResourceError, anthesis.ComputeError):
        assert issubclass(error, RuntimeError) and error.__doc__


def test_version_and_instruction_sets() -> None:
    assert anthesis.__version__.count(".") == 2
    assert anthesis.current_isa() in anthesis.available_isas()
