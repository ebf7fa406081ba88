"""What the rivals' servers share: a line of JSON says what to run, a line with a number answers.

{"work": "prompt", "tokens": 512} is answered with tokens per second to the logits of the last token; {"work": "decode", "sequences": 32,
"context": 128, "steps": 12} with tokens per second of all sequences together, the median of the steps.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def serve(prompt: Callable[[int], Any], decode: Callable[[int, int, int], list[float]]) -> None:
    """`prompt(tokens)` runs a prompt; `decode(sequences, context, steps)` returns the seconds of each step."""
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["work"] == "prompt":
            answer = request["tokens"] / timed(lambda: prompt(request["tokens"]))[0]
        else:
            seconds = decode(request["sequences"], request["context"], request["steps"])
            answer = request["sequences"] / statistics.median(seconds)
        print(json.dumps(answer), flush=True)
