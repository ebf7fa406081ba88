"""Anthesis beside llama.cpp, OpenVINO, CTranslate2 and transformers: the same work in alternation, ratios of medians.

    benchmarks/rivals/setup build-rivals                       # once: environments, and llama.cpp built
    python3 benchmarks/rivals/compare.py build-rivals [--shape 560m] [--dtype bf16 ...] [--line "decode 32" ...] [--rounds 5] [--json]

The model is random, of a released shape; it and its conversions are made in build-rivals when first needed. A line is "prompt N" (to the last token's
logits) or "decode N" (N sequences after 128 tokens each). Rivals that are not set up are left out, by name. Nothing else should run on the machine; the share of its
limit that Anthesis prints beside its speed tells whether it was so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LINES = ("decode 1", "decode 32", "prompt 512")
CONTEXT, STEPS = 128, 16
# Rivals beside each of our number formats: (engine, its own name of a format).
RIVALS = {
    "f32": [("llama", "f32"), ("openvino", "f32"), ("ctranslate2", "float32"), ("transformers", "float32")],
    "bf16": [("llama", "bf16"), ("openvino", "bf16"), ("transformers", "bfloat16")],
    "int8": [("llama", "q8_0"), ("openvino", "int8"), ("ctranslate2", "int8")],
    "int4": [("llama", "q4_0"), ("llama", "q4_K_M"), ("openvino", "int4")],
}


def run(*command: Any) -> None:
    """Runs a conversion; what it printed is shown only where it fails."""
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise SystemExit(f"compare: {command[0]} ended with status {done.returncode}:\n{done.stdout[-3000:]}")


def made(path: Path, *command: Any) -> Path:
    """`path`, which the command writes unless it is there; a command that fails leaves nothing."""
    if not path.exists():
        print(f"making {path.name}", file=sys.stderr, flush=True)
        part = path.with_name("part-" + path.name)
        run(*[part if argument is path else argument for argument in command])
        part.rename(path)
    return path


class Anthesis:
    name = "anthesis"

    def __init__(self, program: Path, model: Path, dtype: str, threads: int) -> None:
        self._command = [program, "bench", model, "--dtype", dtype, "--threads", str(threads), "--context", str(CONTEXT), "--json", "--only"]
        self.shares: dict[str, list[float]] = {}

    def measure(self, line: str) -> float:
        done = subprocess.run([*self._command, line], text=True, stdout=subprocess.PIPE, check=True)
        found = next(each for each in json.loads(done.stdout)["lines"] if each["name"].split(",")[0] == line)
        self.shares.setdefault(line, []).append(found["share"])
        return float(found["value"])


class Llama:
    def __init__(self, root: Path, model: Path, dtype: str, threads: int) -> None:
        self.name = f"llama.cpp {dtype}"
        self._programs = root / "llama" / "bin"
        python = root / "transformers" / "bin" / "python"
        whole = "f32" if dtype == "f32" else "bf16"
        file = made(root / f"{model.name}-{whole}.gguf", python, HERE / "to_gguf.py", model, root / f"{model.name}-{whole}.gguf", whole)
        if dtype != whole:
            quantised = root / f"{model.name}-{dtype}.gguf"
            file = made(quantised, self._programs / "llama-quantize", file, quantised, dtype.upper(), threads)
        self._file, self._threads = file, str(threads)

    def _run(self, program: str, *arguments: str) -> dict[str, Any]:
        command = [self._programs / program, "-m", self._file, "-t", self._threads, *arguments]
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))

    def measure(self, line: str) -> float:
        work, count = line.split()
        if work == "prompt":
            return float(self._run("llama-bench", "-p", count, "-n", "0", "-fa", "1", "-r", "1", "-o", "jsonl")["avg_ts"])
        cells = str(int(count) * (CONTEXT + STEPS) + 256)
        found = self._run("llama-batched-bench", "-c", cells, "-b", "2048", "-ub", "512", "-npp", str(CONTEXT), "-ntg", str(STEPS), "-npl", count,
                          "-tb", self._threads, "--output-format", "jsonl")
        return float(found["speed_tg"])


class Server:
    """A rival in a process of its own that answers on its standard output."""

    def __init__(self, name: str, root: Path, engine: str, *arguments: Any) -> None:
        self.name = name
        command = [root / engine / "bin" / "python", HERE / f"serve_{engine}.py", *map(str, arguments)]
        self._process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                return json.loads(line)
            except ValueError:
                continue  # what its libraries print
        raise SystemExit(f"compare: {self.name} ended with status {self._process.wait()}")

    def measure(self, line: str) -> float:
        work, count = line.split()
        request = {"work": work, "tokens": int(count), "sequences": int(count), "context": CONTEXT, "steps": STEPS}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        self._process.communicate()


def rival(engine: str, dtype: str, root: Path, model: Path, threads: int) -> Llama | Server:
    if engine == "llama":
        return Llama(root, model, dtype, threads)
    name = {"openvino": "OpenVINO", "ctranslate2": "CTranslate2"}.get(engine, engine)
    name = f"{name} {dtype}"
    programs = root / engine / "bin"
    if engine == "transformers":
        return Server(name, root, engine, model, dtype, threads)
    if engine == "ctranslate2":
        folder = root / f"{model.name}-ct2-{dtype}"
        made(folder, programs / "ct2-transformers-converter", "--model", model, "--quantization", dtype, "--output_dir", folder)
        return Server(name, root, engine, folder, dtype, threads)
    weights = "fp32" if dtype in ("f32", "bf16") else dtype
    folder = root / f"{model.name}-openvino-{weights}"
    groups = ["--group-size", "64", "--ratio", "1.0"] if weights == "int4" else []
    made(folder, programs / "optimum-cli", "export", "openvino", "-m", model, "--task", "text-generation-with-past", "--weight-format", weights, *groups, folder)
    return Server(name, root, engine, folder, dtype if weights == "fp32" else "default", threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="what setup made")
    parser.add_argument("--shape", default="560m")
    parser.add_argument("--dtype", nargs="*", choices=RIVALS, default=list(RIVALS))
    parser.add_argument("--line", nargs="*", default=list(LINES))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", type=Path, default=HERE.parents[1] / "build" / "anthesis")
    parser.add_argument("--json", action="store_true", help="one object on standard output instead of tables")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    there = {name for name in ("transformers", "ctranslate2", "openvino") if (root / name / "bin" / "python").exists()}
    if (root / "llama" / "bin" / "llama-bench").exists():
        there.add("llama")
    for name in sorted({engine for row in RIVALS.values() for engine, _ in row} - there):
        print(f"left out: {name} is not set up in {root}", file=sys.stderr)
    if "transformers" not in there:
        raise SystemExit("compare: the model is made with transformers; run setup ROOT transformers first")
    folder = root / arguments.shape
    model = made(folder, root / "transformers" / "bin" / "python", HERE / "make_model.py", folder, arguments.shape)

    results = []
    for dtype in arguments.dtype:
        own = Anthesis(arguments.program, model, dtype, arguments.threads)
        engines = [own, *(rival(engine, theirs, root, model, arguments.threads) for engine, theirs in RIVALS[dtype] if engine in there)]
        for line in arguments.line:
            found: dict[str, list[float]] = {engine.name: [] for engine in engines}
            for _ in range(arguments.rounds):
                for engine in engines:
                    found[engine.name].append(engine.measure(line))
            ours = statistics.median(found[own.name])
            share = statistics.median(own.shares[line])
            if not arguments.json:
                print(f"{dtype}, {line}: anthesis {ours:.1f} tok/s, {share:.2f} of the machine's limit", flush=True)
            for name, speeds in found.items():
                theirs = statistics.median(speeds)
                results.append({"dtype": dtype, "line": line, "engine": name, "tokens_per_second": theirs, "runs": speeds, "anthesis_over_it": ours / theirs})
                if not arguments.json and name != own.name:
                    print(f"    {name:24} {theirs:8.1f} tok/s [{min(speeds):.1f} .. {max(speeds):.1f}]   {ours / theirs:5.2f} x", flush=True)
        for engine in engines:
            if isinstance(engine, Server):
                engine.close()
    if arguments.json:
        print(json.dumps({"shape": arguments.shape, "threads": arguments.threads, "rounds": arguments.rounds, "results": results}))


if __name__ == "__main__":
    main()
