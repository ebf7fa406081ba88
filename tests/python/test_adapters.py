"""Adapters: by name, by folder and by handle, one per row in every call; the store; merging and folding."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

import anthesis

FOLDERS = {name: ROOT / "demo" / "adapters" / name for name in ("dutch", "german", "italian")}
PROMPT = "Artikel 1\n"


@pytest.fixture(scope="module")
def own() -> anthesis.Model:
    """A model whose store is these tests' alone."""
    model = anthesis.load(threads=1, kv_tokens=16384)
    model.load_adapter("nl", FOLDERS["dutch"])
    model.load_adapter(FOLDERS["german"], adapter_name="de")
    return model


def test_every_spelling_is_the_same_adapter(own: anthesis.Model) -> None:
    handle = own.load_adapter(FOLDERS["dutch"])
    right = own.generate(PROMPT, adapter=handle, max_new_tokens=12).text
    assert right != own.generate(PROMPT, max_new_tokens=12).text
    for given in ("nl", FOLDERS["dutch"], str(FOLDERS["dutch"]), own.adapters["nl"]):
        assert own.generate(PROMPT, adapter=given, max_new_tokens=12).text == right
    assert own.adapters["nl"] == own.adapters["nl"] != handle
    assert own.adapters["nl"] == own.load_adapter("nl", FOLDERS["dutch"]), "the same name of the same folder is there already"
    with pytest.raises(anthesis.InvalidArgument, match="stands for"):
        own.load_adapter("nl", FOLDERS["german"])
    with pytest.raises(anthesis.InvalidArgument, match="both given"):
        own.load_adapter("nl", FOLDERS["dutch"], adapter_name="x")  # type: ignore[call-overload]


def test_each_row_has_its_own(own: anthesis.Model) -> None:
    names = ["nl", None, FOLDERS["german"], "__base__"]
    alone = [own.generate(PROMPT, adapter=name, max_new_tokens=12).text for name in names]
    assert len(set(alone)) == 3
    for given in ({"adapters": names}, {"adapter_names": names}, {"adapter": names}):
        assert [one.text for one in own.generate([PROMPT] * 4, max_new_tokens=12, **given)] == alone
    texts = own.generate([PROMPT, {"prompt": PROMPT, "adapter": "de"}], adapters=["nl", "nl"], max_new_tokens=12)
    assert [one.text for one in texts] == [alone[0], alone[2]], "a prompt's own word comes first"
    assert "".join(token.text for token in own.stream(PROMPT, adapter="nl", max_new_tokens=12)) == alone[0]

    ids = own.encode(PROMPT).input_ids[0].tolist()
    rows = [own.forward([ids], adapter=name).logits[0] for name in names]
    for given in ({"adapters": names}, {"adapter_names": names}):
        assert np.array_equal(own.forward([ids] * 4, **given).logits, np.stack(rows))
    with own.trace([PROMPT] * 4, adapter_names=names) as t:
        assert np.array_equal(t.logits, np.stack(rows))
    with own.trace(PROMPT, adapter="nl") as t:
        assert np.array_equal(t.logits[0], rows[0])
    with own.trace(adapter=str(FOLDERS["dutch"])) as t:
        with t.invoke(PROMPT, adapter="__base__"):
            assert np.array_equal(t.logits[0], rows[1])
        with t.invoke(PROMPT):
            assert np.array_equal(t.logits[0], rows[0])


def test_what_is_refused(own: anthesis.Model, model: anthesis.Model) -> None:
    with pytest.raises(anthesis.InvalidArgument, match=r"\[generate\] there is no adapter 'french': the store has .*nl"):
        own.generate(PROMPT, adapter="french")
    with pytest.raises(anthesis.InvalidArgument, match="2 adapters"):
        own.generate([PROMPT], adapters=["nl", "de"])
    with pytest.raises(anthesis.InvalidArgument, match="2 adapters"):
        own.forward([[1]], adapters=["nl", "de"])
    with pytest.raises(anthesis.InvalidArgument, match="adapter and adapter_names"):
        own.forward([[1]], adapter="nl", adapter_names=["nl"])
    with pytest.raises(anthesis.InvalidArgument, match="expected a list"):
        own.generate([PROMPT], adapters="nl")
    with pytest.raises(anthesis.InvalidArgument, match="adapter is int"):
        own.generate(PROMPT, adapter=3)  # type: ignore[call-overload]
    with pytest.raises(anthesis.InvalidArgument, match="was loaded for"):
        model.generate(PROMPT, adapter=own.adapters["nl"])
    with pytest.raises(anthesis.LoadError):
        own.load_adapter("bad", ROOT / "demo")
    assert "bad" not in own.adapters


def test_a_past_goes_on_under_its_adapter(own: anthesis.Model) -> None:
    past = own.forward(PROMPT, adapter="nl").past_key_values
    with_name = own.forward([[7]], cache=past, adapter="nl").logits
    assert np.array_equal(with_name, own.forward([[7]], cache=past, adapter=own.adapters["nl"]).logits)
    with pytest.raises(anthesis.InvalidArgument, match="made under"):
        own.forward([[7]], cache=past, adapter="de")


def test_a_folder_that_changed_is_read_anew(own: anthesis.Model, tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    shutil.copytree(FOLDERS["dutch"], folder)
    before = own.generate(PROMPT, adapter=folder, max_new_tokens=12).text
    assert own.adapters.find(folder, "test") == own.adapters.find(str(folder), "test")
    shutil.rmtree(folder)
    shutil.copytree(FOLDERS["italian"], folder)
    (folder / "adapter_config.json").write_text((folder / "adapter_config.json").read_text() + "\n")
    after = own.generate(PROMPT, adapter=folder, max_new_tokens=12).text
    assert before == own.generate(PROMPT, adapter="nl", max_new_tokens=12).text
    assert after == own.generate(PROMPT, adapter=FOLDERS["italian"], max_new_tokens=12).text != before


def test_the_store() -> None:
    size = anthesis.load(threads=1, kv_tokens=64).load_adapter(FOLDERS["dutch"]).info.bytes
    model = anthesis.load(threads=1, kv_tokens=4096, adapter_bytes=2 * size)
    for name, folder in FOLDERS.items():
        model.adapters.add(name, folder)
    assert list(model.adapters) == sorted(FOLDERS) and len(model.adapters) == 3 and model.adapters.bytes == 0
    for name in FOLDERS:
        model.generate(PROMPT, adapter=name, max_new_tokens=1)
    assert [one.name for one in model.adapters.list() if one.loaded] == ["german", "italian"], "dutch was used longest ago"
    model.adapters.pin("german")
    held = model.adapters["italian"]
    with pytest.raises(anthesis.ResourceError, match="budget"):
        model.generate(PROMPT, adapter="dutch")
    listed = {one.name: one for one in model.adapters.list()}
    assert listed["german"].pinned and listed["italian"].in_use and listed["german"].bytes == size
    assert "german" in repr(model.adapters)
    model.adapters.unpin("german")
    model.adapters.unload("italian")
    with pytest.raises(KeyError):
        model.adapters["italian"]
    assert "italian" not in model.adapters and held.info.parameters > 0
    assert model.adapters["dutch"].info.bytes == size


def test_merging(own: anthesis.Model) -> None:
    ids = own.encode(PROMPT).input_ids
    both = own.merge_adapters(["nl", FOLDERS["german"]], [0.5, 0.25])
    assert "0.25" in both.info.name and len(both.info.modules) == 24
    own.adapters.add_merged("both", ["nl", "de"], [0.5, 0.25])
    assert np.array_equal(own.forward(ids, adapter=both).logits, own.forward(ids, adapter="both").logits)
    again = own.adapters.merge([own.adapters["nl"], "de"], [0.5, 0.25])
    assert np.array_equal(own.forward(ids, adapter=both).logits, own.forward(ids, adapter=again).logits)
    for kind in ("linear", "svd", "ties", "dare_linear", "dare_ties", "magnitude_prune"):
        other = own.merge_adapters(["nl", "de"], kind=kind, density=0.5, majority_sign="frequency", seed=3, svd_rank=8 * (kind == "svd"))
        assert other.info.name.startswith(f"{kind} of ")
    with pytest.raises(anthesis.InvalidArgument, match="1 weights for 2"):
        own.merge_adapters(["nl", "de"], [1.0])
    with pytest.raises(anthesis.InvalidArgument, match="merged itself"):
        own.merge_adapters([both, "de"])
    with pytest.raises(anthesis.InvalidArgument, match="merged itself"):
        own.merge_adapters(["both", "de"])
    with pytest.raises(anthesis.InvalidArgument, match="kind is"):
        own.merge_adapters(["nl", "de"], kind="sum")


def test_folding(own: anthesis.Model) -> None:
    """Folded, the logits are the same to rounding: each weight is rounded once more, which changes a sum of K products by about
    sqrt(K) half units of the last place of its terms, as another order of sums does. 1e-4 of the largest logit is 800 units."""
    ids = own.encode(PROMPT).input_ids
    folded = own.merged("nl")
    dynamic = own.forward(ids, adapter="nl").logits
    found = folded.forward(ids).logits
    assert np.abs(found - dynamic).max() <= 1e-4 * np.abs(dynamic).max()
    assert np.abs(found - own.forward(ids).logits).max() > 1, "an adapter that does nothing would pass"
    assert folded.generate(PROMPT, max_new_tokens=12).text == own.generate(PROMPT, adapter="nl", max_new_tokens=12).text
    assert folded.info.folded == str(FOLDERS["dutch"]) and own.info.folded == ""
    assert own.merged("nl", dtype="int8").info.dtype == "int8"
    assert own.merged(own.merge_adapters(["nl", "de"])).info.folded.startswith("cat of ")
    for bad in (None, "__base__"):
        with pytest.raises(anthesis.InvalidArgument, match="no adapter to fold in"):
            own.merged(bad)
    with pytest.raises(anthesis.InvalidArgument, match="folded into this model already"):
        folded.merged(FOLDERS["dutch"])


def test_threads_load_while_others_decode(own: anthesis.Model) -> None:
    right = {name: own.generate(PROMPT, adapter=folder, max_new_tokens=10).text for name, folder in FOLDERS.items()}
    found: list[tuple[str, str]] = []

    def work(name: str) -> None:
        for turn in range(4):
            own.load_adapter(f"{name} {turn % 2}", FOLDERS[name])
            found.append((name, own.generate(PROMPT, adapter=f"{name} {turn % 2}", max_new_tokens=10).text))

    threads = [threading.Thread(target=work, args=(name,)) for name in FOLDERS for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 24 and all(text == right[name] for name, text in found)


def test_the_demo_is_what_peft_makes_of_it(own: anthesis.Model) -> None:
    expected = json.loads((ROOT / "demo" / "expected.json").read_text())
    names = sorted(FOLDERS)
    for index, prompt in enumerate(expected["prompts"]):
        found = own.generate([prompt["ids"]] * len(names), adapters=[FOLDERS[name] for name in names], max_new_tokens=40)
        for name, result in zip(names, found):
            right = expected["continuations"][name][index]
            clear = next((i for i, margin in enumerate(right["margins"]) if margin < 1e-3), len(right["margins"]))
            assert result.new_ids[:clear].tolist() == right["ids"][:clear]
