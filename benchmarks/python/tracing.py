"""What reading values costs: traces beside plain passes, and beside nnterp where a Python that has it is named.

    .venv/bin/python benchmarks/python/tracing.py [--model DIR] [--tokens 512] [--threads 2] [--runs 7] [--rival PYTHON]

Without --model a random model of bloom-560m's shape is written to a temporary folder (needs torch and transformers). Every line is the median of
runs in alternation; the rival runs in a process of its own, in turn with ours. Times are of this machine at this moment: compare ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BODIES = ("layer outputs", "three values per layer", "patterns", "logits", "layer 5, then stop")


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def bodies(model: Any, ids: Any, legacy: bool) -> dict[str, Callable[[], Any]]:
    """The same bodies for both; nnterp 1.3's `attentions_output` is the stream on BLOOM, but costs what the contribution does."""
    layers = range(model.num_layers)

    def layer_outputs() -> Any:  # nnsight reads the body's source: no return and no comprehension in it
        with model.trace(ids):
            kept = []
            for i in layers:
                kept.append(model.layers_output[i].save())
            kept = kept.save() if legacy else kept
        return kept

    def three() -> Any:
        with model.trace(ids):
            kept = []
            for i in layers:
                if legacy:
                    kept.append(model.attentions_output[i].save())
                    kept.append(model.mlps_output[i].save())
                else:
                    kept.append(model.layers[i].self_attn.attention_output.save())
                    kept.append(model.layers[i].mlp.mlp_output.save())
                kept.append(model.layers_output[i].save())
            kept = kept.save() if legacy else kept
        return kept

    def patterns() -> Any:
        with model.trace(ids):
            kept = []
            for i in layers:
                kept.append(model.attention_probabilities[i].save())
            kept = kept.save() if legacy else kept
        return kept

    def logits() -> Any:
        with model.trace(ids):
            kept = model.logits.save()
        return kept

    def early() -> Any:
        with model.trace(ids) as tracer:
            kept = model.layers_output[5].save()
            tracer.stop()
        return kept

    return dict(zip(BODIES, (layer_outputs, three, patterns, logits, early)))


def serve(arguments: argparse.Namespace) -> None:
    """Answers each line on standard input, the name of a body, with its seconds."""
    start = time.perf_counter()
    import torch

    imported = time.perf_counter()
    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    if arguments.serve == "nnterp":
        from nnterp import StandardizedTransformer
    else:
        from anthesis.nnterp import StandardizedTransformer
    ready = time.perf_counter()
    options: dict[str, Any] = {"dtype": torch.float32} if arguments.serve == "nnterp" else {"threads": arguments.threads}
    model = StandardizedTransformer(arguments.model, **options)
    constructed = time.perf_counter()
    ids = torch.randint(4, 260, (1, arguments.tokens))
    known = bodies(model, ids, arguments.serve == "nnterp")
    known["layer outputs"]()
    first = time.perf_counter()
    print(json.dumps({"torch": imported - start, "import": ready - imported, "load": constructed - ready, "first trace": first - constructed}), flush=True)
    for line in sys.stdin:
        try:
            print(json.dumps(timed(known[line.strip()])), flush=True)
        except Exception as error:  # a body that the rival does not have
            print(json.dumps(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"), flush=True)


class Server:
    """An engine in a process of its own."""

    def __init__(self, python: str, engine: str, arguments: argparse.Namespace) -> None:
        command = [python, __file__, "--serve", engine, "--model", str(arguments.model), "--tokens", str(arguments.tokens), "--threads", str(arguments.threads)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.start: dict[str, float] = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(("{", '"')) or line[:1].isdigit():
                return json.loads(line)
        raise SystemExit(f"the process ended with status {self._process.wait()}")

    def run(self, body: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(body + "\n")
        self._process.stdin.flush()
        return self._answer()


def random_model(folder: Path) -> Path:
    import torch
    from transformers import BloomConfig, BloomForCausalLM

    torch.manual_seed(0)
    config = BloomConfig(vocab_size=250880, hidden_size=1024, n_layer=24, n_head=16, bos_token_id=1, eos_token_id=2, pad_token_id=3)
    BloomForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    bundled = Path(__file__).resolve().parents[2] / "demo" / "model"
    for file in bundled.glob("*token*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def copy_bandwidth() -> float:
    """Bytes per second copied into a buffer that is used again, as numpy copies."""
    import numpy as np

    source, into = np.ones(1 << 22, np.float32), np.empty(1 << 22, np.float32)
    return source.nbytes / statistics.median(timed(lambda: np.copyto(into, source)) for _ in range(30))


def own_cost(arguments: argparse.Namespace) -> None:
    """What a trace and a stop cost by themselves: the bundled model, one token, as numpy arrays."""
    import anthesis

    model = anthesis.load(threads=1)
    names = [f"layers.{i}.{name}" for i in range(model.config.n_layer) for name in ("layer_input", "attention_norm_output", "self_attn.attention_output", "layer_mid", "mlp_norm_output", "mlp.mlp_activation", "mlp.mlp_output")]

    def run(stops: list[str]) -> None:
        with model.trace([[5]]) as t:
            for name in stops:
                t.get(name)
            t.get("final_norm_output")

    def plain() -> None:
        model.forward([[5]], use_cache=False, capture="final_norm_output", output_logits=False)

    for work in (lambda: run(names), lambda: run([]), plain):
        work()
    few, many, passes = ([timed(work) for _ in range(300)] for work in (lambda: run([]), lambda: run(names), plain))
    stop = (statistics.median(many) - statistics.median(few)) / len(names)
    trace = statistics.median(few) - statistics.median(passes)
    print(f"a stop: {stop * 1e6:.1f} us; a trace beyond a forward call: {trace * 1e6:.0f} us (one token, one thread)")


def capturing(arguments: argparse.Namespace) -> None:
    """Captures of a pass against the bytes that they copy."""
    import numpy as np

    import anthesis

    model = anthesis.load(arguments.model, threads=arguments.threads)
    ids = np.random.default_rng(0).integers(4, 260, (1, arguments.tokens))
    plain = lambda: model.forward(ids, use_cache=False, output_logits=False)  # noqa: E731
    lines = {
        "layer outputs": "layers.*.layer_output",
        "all but scores, patterns, logits": ",".join(
            f"layers.*.{n}" for n in ("layer_input", "attention_norm_output", "layer_mid", "mlp_norm_output", "layer_output", "self_attn.attention_queries",
            "self_attn.attention_keys", "self_attn.attention_values", "self_attn.attention_head_outputs", "self_attn.attention_output", "mlp.mlp_activation", "mlp.mlp_output")
        ),
        "scores and patterns": "layers.*.self_attn.attention_scores,layers.*.self_attn.attention_probabilities",
    }
    for name, capture in lines.items():
        def captured() -> Any:
            return model.forward(ids, use_cache=False, output_logits=False, capture=capture)

        size = sum(a.nbytes for a in captured().values.values())
        pairs = [(timed(plain), timed(captured)) for _ in range(arguments.runs)]
        bandwidth = copy_bandwidth()
        extra = statistics.median(b - a for a, b in pairs)
        ratio = statistics.median(b / a for a, b in pairs)
        print(f"forward, {name}: {ratio:.2f} x the plain pass, {extra * 1e3:.1f} ms more for {size / 1e6:.0f} MB, {extra * bandwidth / size:.2f} x a copy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--rival", help="a Python that has nnterp 1.3.0 and nnsight < 0.8")
    parser.add_argument("--serve", choices=("anthesis", "nnterp"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        if arguments.model is None:
            arguments.model = random_model(Path(folder))
        import_time = [timed(lambda: subprocess.run([sys.executable, "-c", "import anthesis"], check=True)) for _ in range(5)]
        bare = [timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)) for _ in range(5)]
        print(f"import anthesis: {(statistics.median(import_time) - statistics.median(bare)) * 1e3:.0f} ms beyond the interpreter's start")
        own_cost(arguments)
        capturing(arguments)
        servers = {"anthesis": Server(sys.executable, "anthesis", arguments)}
        if arguments.rival:
            servers["nnterp"] = Server(arguments.rival, "nnterp", arguments)
        for name, server in servers.items():
            print(f"{name}: " + ", ".join(f"{what} {seconds:.2f} s" for what, seconds in server.start.items()))
        for body in BODIES:
            found: dict[str, list[Any]] = {name: [] for name in servers}
            for _ in range(arguments.runs):
                for name, server in servers.items():
                    found[name].append(server.run(body))
            text = []
            for name, seconds in found.items():
                refused = [s for s in seconds if isinstance(s, str)]
                text.append(f"{name} {refused[0]}" if refused else f"{name} {statistics.median(seconds) * 1e3:.1f} ms")
            if len(found) == 2 and not any(isinstance(s, str) for row in found.values() for s in row):
                text.append(f"{statistics.median(b / a for a, b in zip(*found.values())):.2f} x")
            print(f"trace, {body}: " + ", ".join(text))


if __name__ == "__main__":
    main()
