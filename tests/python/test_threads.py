"""Threads that share a model, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import anthesis

PROMPTS = ["Everyone has the right to", "No one shall be", "All human beings", "Tous les êtres humains"]


def _work(model: anthesis.Model, index: int) -> Any:
    prompt = PROMPTS[index % len(PROMPTS)]
    kind = index % 3
    if kind == 0:
        return model.generate(prompt, max_new_tokens=12, temperature=0.8, seed=index).text
    if kind == 1:
        output = model.forward(prompt, capture="layers.*.layer_output")
        return output.logits.tobytes() + b"".join(value.tobytes() for value in output.values.values())
    return "".join(token.text for token in model.stream(prompt, max_new_tokens=12))


def test_many_threads_get_what_each_gets_alone(model: anthesis.Model) -> None:
    alone = [_work(model, index) for index in range(24)]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda index: _work(model, index), range(24)))
    assert together == alone
    assert model.statistics.kv_pages_used == 0


def test_callbacks_on_other_threads(model: anthesis.Model) -> None:
    """Whoever steps runs everybody's callbacks; a deadlock between the GIL and the engine would hang here."""

    def work(index: int) -> list[int]:
        found = model.generate(
            PROMPTS[index % 4], max_new_tokens=10, logits_callback=lambda ids, logits: None, stopping_callback=lambda ids: False
        )
        return [int(i) for i in found.new_ids]

    alone = [work(index) for index in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(16))) == alone * 4


def test_the_gil_is_released(model: anthesis.Model) -> None:
    """Another thread counts while a pass runs; held, it would get no turn until the end."""
    counted = 0
    over = threading.Event()

    def count() -> None:
        nonlocal counted
        while not over.is_set():
            counted += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    ids = np.arange(3000) % 7000
    thread.start()
    before = counted
    model.forward(ids, output_logits=False, use_cache=False)
    during = counted - before
    over.set()
    thread.join()
    assert during > 10


def test_a_forked_process_is_told(model: anthesis.Model) -> None:
    """The threads stay behind: what would wait for them raises, a model of its own works, and leaving the process does not hang."""
    with model.trace("Everyone"):
        pass
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        found = 0
        for use in (lambda: model.generate("a"), lambda: model.forward("a"), lambda: model.trace("a")):
            try:
                use()
            except anthesis.InvalidArgument as error:
                found += "before this process was forked" in str(error)
        found += anthesis.load(threads=1, kv_tokens=512).generate("Everyone", max_new_tokens=1).finish_reason == "length"
        os._exit(found)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4


_CHILD = """
import sys, anthesis
model = anthesis.load(threads=1)
print("ready", flush=True)
try:
    {work}
except KeyboardInterrupt:
    assert model.statistics.kv_pages_used == 0
    print("interrupted", model.generate("Everyone has", max_new_tokens=2).finish_reason, flush=True)
"""


@pytest.mark.parametrize(
    "work",
    [
        "model.generate('Everyone', max_new_tokens=100000, eos_token_id=[])",
        "model.forward([[5] * 60000], output_logits=False)",
        "list(model.stream('Everyone', max_new_tokens=100000, eos_token_id=[]))",
    ],
)
def test_ctrl_c(work: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD.format(work=work)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n", child.communicate()
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=60)
    assert output == "interrupted length\n", errors
