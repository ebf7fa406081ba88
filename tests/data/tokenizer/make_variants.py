"""Writes variants.json: changes to the golden tokenizer.json, texts, and what Hugging Face `tokenizers` makes of them.

    python make_variants.py        # needs `tokenizers`; the file here was made with 0.23.3

Each variant draws its own added tokens with all flags, prefix space and post-processor. Texts are mixed from white space of
all kinds, the 14 gap characters, the added tokens, marks, bytes without a token and any code points. Where the library
panics, the text is left out.
"""
import json
import pathlib
import random

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
BASE = json.loads((HERE.parent / "goldens/tokenizer/tokenizer.json").read_text(encoding="utf-8"))
SPACES = [*map(chr, [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000])]
GAPS = list("()|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c")
WORDS = ["a", "b", "the", " the", " ", "  ", "\n", "\u0301", "\u200d", "\U0001F602", "\u0120", "x", "13", "<", "s", ">", "\u00e9", "_",
         "\x13", "\x13\x13", "\x11", " \x13", "\u4e2d", "\u7684", "\u0915\u094d\u0937", "\u0627\u0644\u0644", " d'abord", "Hello", " world"]
CONTENTS = ["<mask>", " <m>", "<m> ", "a", "ab", "the", " the", "\u0120the", "\u00e9", "\u4e2d", " ", "  ", "\n", "QZ", "QZQ", "QZQZ", "_x",
            "<s><s>", "s>", "\u0301", "foo bar", "\U0001F602", "\u0120", "<extra 1>", "<extra 12>", "\t", "\u3000", "th", "e", "\x13", "aa",
            "aaa", "<s> "]


def any_character(rng):
    while True:
        c = rng.randrange(rng.choice([0x80, 0x800, 0x10000, 0x110000]))
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def draw_text(rng, contents):
    kinds = [SPACES, GAPS, WORDS, WORDS, contents or WORDS]
    return "".join(any_character(rng) if rng.random() < 0.1 else rng.choice(rng.choice(kinds)) for _ in range(rng.choice([1, 3, 6, 12, 24])))


def draw_changes(rng):
    vocab = BASE["model"]["vocab"]
    chance = lambda p: rng.random() < p
    contents = ["<unk>", "<s>", "</s>", "<pad>"] + rng.sample(CONTENTS, rng.choice([0, 2, 5, 10]))
    added, next_id = [], len(vocab)
    for content in contents:
        number = vocab.get(content, next_id)
        next_id += content not in vocab
        added.append({"id": number, "content": content, "single_word": chance(.3), "lstrip": chance(.3), "rstrip": chance(.3),
                      "normalized": chance(.4), "special": chance(.6)})
    processor = {"type": "ByteLevel", "add_prefix_space": chance(.5), "trim_offsets": chance(.7), "use_regex": chance(.5)}
    return {"added_tokens": added, "add_prefix_space": chance(.4), "post_processor": processor if chance(.9) else None}


def changed(changes):
    data = json.loads(json.dumps(BASE))
    data["added_tokens"] = changes["added_tokens"]
    data["post_processor"] = changes["post_processor"]
    data["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = changes["add_prefix_space"]
    return Tokenizer.from_str(json.dumps(data))


def vectors_of(rng, tokenizer, contents):
    vectors = []
    while len(vectors) < 25:
        text = draw_text(rng, contents)
        try:
            encoding = tokenizer.encode(text)
        except BaseException:       # pyo3's PanicException is no Exception
            continue
        ids = encoding.ids
        vectors.append({"text": text, "ids": ids, "offsets": [n for pair in encoding.offsets for n in pair],
                        "decoded": tokenizer.decode(ids, skip_special_tokens=False), "without_specials": tokenizer.decode(ids)})
    return vectors


def main():
    rng = random.Random(1)
    variants = []
    for _ in range(24):
        changes = draw_changes(rng)
        contents = [token["content"] for token in changes["added_tokens"]]
        variants.append({**changes, "vectors": vectors_of(rng, changed(changes), contents)})
    lines = ",\n".join(json.dumps(variant, separators=(",", ":")) for variant in variants)
    (HERE / "variants.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


main()
