"""serve_openvino.py MODEL TYPE THREADS: OpenVINO on an export with past; TYPE is f32 or bf16, or default for its dynamic quantisation.

The graph is cut so that only the last position reaches the head, as OpenVINO GenAI does.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import openvino
import openvino.opset13 as opset
from serving import serve, timed

folder, precision, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32" if precision == "default" else precision}
if precision != "default":
    settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
core = openvino.Core()
graph = core.read_model(f"{folder}/openvino_model.xml")
head = graph.output("logits").node.input_value(0).node
while head.get_type_name() != "MatMul":
    head = head.input_value(0).node
last = [opset.constant([at]) for at in (-1, 2**31 - 1, 1, 1)]
head.input(0).replace_source_output(opset.slice(head.input_value(0), *last).output(0))
graph.validate_nodes_and_infer_types()
request = core.compile_model(graph, "CPU", settings).create_infer_request()
names = {name for each in request.model_inputs for name in each.names}
random = np.random.default_rng(0)


def step(ids: Any, total: int) -> Any:
    rows = ids.shape[0]
    inputs = {
        "input_ids": ids,
        "attention_mask": np.ones((rows, total), np.int64),
        "beam_idx": np.arange(rows, dtype=np.int32),
        "position_ids": np.arange(total - ids.shape[1], total, dtype=np.int64)[None].repeat(rows, 0),
    }
    request.infer({name: value for name, value in inputs.items() if name in names}, share_inputs=True)
    return request.get_tensor("logits").data[:, -1].argmax(-1)[:, None].astype(np.int64)


def prompt(tokens: int, sequences: int = 1) -> Any:
    request.reset_state()
    return step(random.integers(4, 260, (sequences, tokens)), tokens)


def decode(sequences: int, context: int, steps: int) -> list[float]:
    ids, seconds = prompt(context, sequences), []
    for i in range(steps + 2):
        took, ids = timed(lambda: step(ids, context + 1 + i))
        seconds.append(took)
    return seconds[2:]


serve(prompt, decode)
