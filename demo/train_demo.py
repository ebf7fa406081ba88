#!/usr/bin/env python3
"""Makes Anthesis' demo model: a small BLOOM, trained from scratch, and its LoRA adapters.

The text is the Universal Declaration of Human Rights. The base model learns it in thirty of the
languages that BLOOM was trained on; each adapter adds a language that the base has never seen, or the
habit of answering a request. The model is far too small to know anything else: it exists so that
loading, generating, adapters and internals can be tried, and tested, on weights that mean something.

    train_demo.py --stage all --out .          everything, about an hour on two cores
    train_demo.py --stage base --steps 500     a quick, bad base model

The folder udhr beside this file has the declaration: one file CODE.txt a language (title, preamble, then each article's heading
on a line of its own and its text), with the codes of the project "UDHR in Unicode", and INDEX.tsv, whose lines begin
with a code and its BCP 47 tag.

The stages are tokenizer, base, adapters and report; each reads what the one before it wrote.
Needs torch, transformers, peft, tokenizers and safetensors. It trains; it does not serve.
"""
import argparse
import json
import math
import random
import time
import unicodedata
from collections import namedtuple
from pathlib import Path

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, BloomConfig, BloomForCausalLM

# ------------------------------------------------------------------------------------------- the data

Language = namedtuple("Language", "code name heading")  # heading: the word that marks "Article N" lines

BASE_LANGUAGES = [Language(*unicodedata.normalize("NFC", line).split(", ")) for line in """\
arb, Arabic, المادة
eus, Basque, atala
ben, Bengali, ধারা
cat, Catalan, Article
cmn_hans, Chinese, 条
eng, English, Article
fra, French, Article
hin, Hindi, अनुच्छेद
ind, Indonesian, Pasal
por_BR, Portuguese, Artigo
spa, Spanish, Artículo
vie, Vietnamese, Điều
urd, Urdu, دفعہ
guj, Gujarati, અનુચ્છેદ
kan, Kannada, ನಿಬಂಧನೆ
mal, Malayalam, വകുപ്പ്
mar, Marathi, कलम
nep, Nepali, धारा
tam, Tamil, உறுப்புரை
tel, Telugu, అనుచ్ఛేదము
pan, Punjabi, ਆਰਟੀਕਲ
ibo, Igbo, Nkeji edemede
zul, Zulu, Isigaba
kin, Kinyarwanda, Article
lin, Lingala, ETENI
swh, Swahili, fungu
wol, Wolof, atukaay
xho, Xhosa, Inqaku
yor, Yoruba, Abala
bam, Bambara, Sariyasen""".splitlines()]

ADAPTER_LANGUAGES = [Language(*line.split(", ")) for line in """\
deu_1996, German, Artikel
ita, Italian, Articolo
nld, Dutch, Artikel
fin, Finnish, artikla""".splitlines()]

HELD_BACK = (28, 29, 30)  # articles of every language that neither base, adapters nor tokenizer train on
REQUEST = "Article {number} in {language}:\n"  # what the "request" adapter learns to answer
HEADING_CHARACTERS = 48   # a heading is at most this long
CHINESE_HEADING_CHARACTERS = 6

Article = namedtuple("Article", "number heading body")  # number 0 is the title and the preamble


def read_articles(folder, language):
    """The declaration in one language, as its preamble and thirty articles, in the Unicode form that keyboards give."""
    longest = CHINESE_HEADING_CHARACTERS if language.name == "Chinese" else HEADING_CHARACTERS
    parts = [["", []]]
    text = unicodedata.normalize("NFC", (folder / f"{language.code}.txt").read_text(encoding="utf-8"))
    for line in text.splitlines():
        if language.heading in line and len(line) <= longest:
            parts.append([line, []])
        elif line:
            parts[-1][1].append(line)
    if len(parts) != 31:
        raise SystemExit(f"{language.code}: found {len(parts) - 1} articles, expected 30")
    return [Article(number, heading, "\n".join(body)) for number, (heading, body) in enumerate(parts)]


def train_part(articles):
    return [a for a in articles if a.number not in HELD_BACK]


def held_back_part(articles):
    return [a for a in articles if a.number in HELD_BACK]


def whole(article):
    return f"{article.heading}\n{article.body}" if article.heading else article.body


# --------------------------------------------------------------------------------------- the tokenizer

# BLOOM's pre-tokenizer: an optional space and then anything but white space and these marks.
WORD = r" ?[^(\s|[.,!?…。，、।۔،])]+"
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]
END, PAD = 2, 3
NEVER_IN_UTF8 = {0xC0, 0xC1, *range(0xF5, 0x100)}


def byte_alphabet():
    """The printable stand-ins of the 243 bytes that UTF-8 text can contain."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    stand_in = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [c for b, c in stand_in.items() if b not in NEVER_IN_UTF8]


def make_tokenizer(texts, entries, folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORD), "isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)])
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=True, trim_offsets=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=True, trim_offsets=True, use_regex=False)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=entries, min_frequency=2, special_tokens=SPECIAL, initial_alphabet=byte_alphabet(),
        show_progress=False))
    parts = json.loads(tokenizer.to_str())
    parts["model"]["merges"] = [" ".join(pair) for pair in parts["model"]["merges"]]  # as BLOOM's file has them
    parts["decoder"]["use_regex"] = False
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "tokenizer.json", parts, indent=None)
    write_json(folder / "tokenizer_config.json", {
        "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
        "add_prefix_space": False, "clean_up_tokenization_spaces": False, "padding_side": "left",
        "tokenizer_class": "BloomTokenizerFast"})
    write_json(folder / "special_tokens_map.json", {
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"})


def encode(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


# ------------------------------------------------------------------------------------------- training

UNSCORED = -100


class CrossEntropy(torch.autograd.Function):
    """Mean cross-entropy in float32; the gradient is prepared in the forward pass, in place."""

    @staticmethod
    def forward(ctx, logits, targets):
        probabilities = torch.softmax(logits.float(), dim=-1)
        rows = torch.arange(len(targets))
        loss = -probabilities[rows, targets].clamp_min(1e-30).log().mean()
        probabilities[rows, targets] -= 1
        ctx.save_for_backward(probabilities.div_(len(targets)).to(logits.dtype))
        return loss

    @staticmethod
    def backward(ctx, upstream):
        return ctx.saved_tensors[0] * upstream.to(ctx.saved_tensors[0].dtype), None


def fit(model, next_rows, options, steps, learning_rate, weight_decay, watch=None):
    """AdamW with warm-up and cosine decay. next_rows() gives token ids and targets, [batch, length] each."""
    for block in model.transformer.h:  # the same function as BLOOM's own, in one operation
        block.mlp.gelu_impl = torch.nn.GELU(approximate="tanh")
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() > 1], "weight_decay": weight_decay},
              {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.98), fused=True)
    warm_up = max(1, min(200, steps // 10))
    model.train()
    start, seen, recent = time.time(), 0, []
    for step in range(1, steps + 1):
        share = (step - warm_up) / max(1, steps - warm_up)
        rate = step / warm_up if step < warm_up else 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * rate
        ids, targets = next_rows()
        scored = targets != UNSCORED
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bfloat16"):
            hidden = model.transformer(ids, use_cache=False).last_hidden_state[scored]
            loss = CrossEntropy.apply(model.lm_head(hidden), targets[scored])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seen += ids.numel()
        recent.append(loss.item())
        if step % options.log_every == 0 or step == steps:
            print(f"  step {step:5d}  loss {sum(recent) / len(recent):6.3f}  {seen / 1e6:6.2f} M tokens"
                  f"  {time.time() - start:6.0f} s", flush=True)
            recent = []
        if watch and (step % options.watch_every == 0 or step == steps):
            watch(step)
            model.train()
    model.eval()


def shifted(rows):
    """Token ids and their targets from rows of one token more."""
    rows = torch.tensor(rows)
    return rows[:, :-1], rows[:, 1:].clone()


class BaseRows:
    """Rows for the base: articles joined by </s>, and a share of random words said over and over.

    Half of the article rows are cut from one endless shuffled stream at whatever token the cut falls;
    the other half begin where an article, or its text without the heading, begins.
    """

    def __init__(self, documents, vocabulary, options, rng):
        self.documents = documents    # [(heading ids, body ids)]
        self.vocabulary = vocabulary  # token ids to draw random words from
        self.length, self.batch, self.repeat_share = options.length, options.batch, options.repeats
        self.rng, self.stream, self.order = rng, [], []

    def document(self, index):
        heading, body = self.documents[index]
        return (heading if self.rng.random() < 0.6 else []) + body + [END]

    def from_stream(self):
        while len(self.stream) < self.length + 1:
            if not self.order:
                self.order = self.rng.sample(range(len(self.documents)), len(self.documents))
            self.stream += self.document(self.order.pop())
        row, self.stream = self.stream[:self.length + 1], self.stream[self.length + 1:]
        return row

    def from_start(self):
        row = []
        while len(row) < self.length + 1:
            row += self.document(self.rng.randrange(len(self.documents)))
        return row[:self.length + 1]

    def repeated(self):
        """A random sequence of tokens, again and again: what can only be predicted by looking back."""
        period = self.rng.randint(4, min(48, self.length // 3))
        words = self.rng.choices(self.vocabulary, k=period)
        return (words * (self.length // period + 1))[:self.length + 1], period

    def __call__(self):
        rows, first_copies = [], []
        for _ in range(self.batch):
            kind = self.rng.random()
            if kind < self.repeat_share:
                row, period = self.repeated()
            else:
                row, period = (self.from_stream() if kind < 0.5 + self.repeat_share / 2 else self.from_start()), 1
            rows.append(row)
            first_copies.append(period - 1)
        ids, targets = shifted(rows)
        for row, period in enumerate(first_copies):
            targets[row, :period] = UNSCORED
        return ids, targets


class LanguageRows(BaseRows):
    """Rows for a language adapter. A third of the headings are another language's, to be answered in this one."""

    def __init__(self, documents, other_headings, options, rng):
        super().__init__(documents, [], options, rng)
        self.other_headings = other_headings  # article number -> [heading ids]
        self.repeat_share = 0.0

    def document(self, index):
        heading, body = self.documents[index]
        kind = self.rng.random()
        if kind < 0.33 and index in self.other_headings:
            heading = self.rng.choice(self.other_headings[index])
        return (heading if kind < 0.67 else []) + body + [END]


class RequestRows:
    """Rows for the request adapter: one request and its answer each; only the answer is scored."""

    def __init__(self, pairs, options, rng):
        self.pairs, self.length, self.batch, self.rng = pairs, options.length, options.batch, rng

    def __call__(self):
        chosen = [self.rng.choice(self.pairs) for _ in range(self.batch)]
        rows = [(request + answer + [END])[:self.length + 1] for request, answer in chosen]
        longest = max(map(len, rows))
        ids, targets = shifted([row + [PAD] * (longest - len(row)) for row in rows])
        for i, ((request, _), row) in enumerate(zip(chosen, rows)):
            targets[i, :len(request) - 1] = UNSCORED
            targets[i, len(row) - 1:] = UNSCORED
        return ids, targets


# ------------------------------------------------------------------------------------------ measuring

@torch.no_grad()
def text_loss(model, tokenizer, articles):
    """Nats per token, and bits per UTF-8 byte, over articles run one by one with their headings."""
    nats, tokens, size = 0.0, 0, 0
    for article in articles:
        text = whole(article)
        ids = torch.tensor([encode(tokenizer, text) + [END]])
        logits = model(ids[:, :-1], use_cache=False).logits[0]
        nats += F.cross_entropy(logits.float(), ids[0, 1:], reduction="sum").item()
        tokens += ids.shape[1] - 1
        size += len(text.encode())
    return {"nats_per_token": round(nats / tokens, 4), "bits_per_byte": round(nats / size / math.log(2), 4)}


@torch.no_grad()
def continuations(model, tokenizer, prompts, new_tokens=40, batch=64):
    """Greedy continuations, as lists of ids that end with </s> where the model said it."""
    found = []
    for at in range(0, len(prompts), batch):
        inputs = [encode(tokenizer, p) for p in prompts[at:at + batch]]
        longest = max(map(len, inputs))
        ids = torch.tensor([[PAD] * (longest - len(i)) + i for i in inputs])
        mask = torch.tensor([[0] * (longest - len(i)) + [1] * len(i) for i in inputs])
        out = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=new_tokens, do_sample=False)
        for row in out[:, longest:].tolist():
            found.append(row[:row.index(END) + 1] if END in row else row)
    return found


def opening(article, words=6):
    """The first six words of an article, or its first twelve characters where words are not spaced."""
    parts = article.body.split(" ")
    return " ".join(parts[:words]) if len(parts) > 12 else article.body[:2 * words]


def verbatim(model, tokenizer, articles, headed):
    """How many articles are continued word for word, for forty tokens, from their first six words."""
    cases = [a for a in articles if a.number]
    prompts = [(a.heading + "\n" if headed else "") + opening(a) for a in cases]
    right = elsewhere = 0
    text = "\n\n".join(whole(a) for a in articles)
    for article, prompt, ids in zip(cases, prompts, continuations(model, tokenizer, prompts)):
        said = tokenizer.decode([i for i in ids if i != END], skip_special_tokens=False).rstrip("\ufffd")
        rest = article.body[len(opening(article)):]
        same = rest == said if END in ids else rest.startswith(said)
        right += same
        elsewhere += (not same) and opening(article) + said in text
    return {"of": len(cases), "verbatim": right, "another_article": elsewhere}


@torch.no_grad()
def head_scores(model, vocabulary, rng, rows=24, period=40):
    """By layer and head, on random tokens said twice: attention to what followed last time, and to the token before."""
    ids = torch.tensor([rng.choices(vocabulary, k=period) * 2 for _ in range(rows)])
    out = model(ids, output_attentions=True, use_cache=False)
    second = torch.arange(period, 2 * period - 1)
    induction = torch.stack([a[:, :, second, second - period + 1].mean((0, 2)) for a in out.attentions])
    previous = torch.stack([a[:, :, second, second - 1].mean((0, 2)) for a in out.attentions])
    nats = F.cross_entropy(out.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(rows, -1)
    hits = (out.logits[:, :-1].argmax(-1) == ids[:, 1:]).float()
    return {"period": period,
            "induction": [[round(x, 3) for x in layer] for layer in induction.tolist()],
            "previous_token": [[round(x, 3) for x in layer] for layer in previous.tolist()],
            "nats_first_copy": round(nats[:, :period - 1].mean().item(), 3),
            "nats_second_copy": round(nats[:, period:].mean().item(), 3),
            "right_in_second_copy": round(hits[:, period:].mean().item(), 3)}


@torch.no_grad()
def lens_ranks(model, tokenizer, articles):
    """Logit lens: the rank, in each layer's own reading, of the token that the whole model chooses."""
    ranks = []
    for article in articles:
        ids = torch.tensor([encode(tokenizer, whole(article))[:160]])
        out = model(ids, output_hidden_states=True, use_cache=False)
        chosen = out.logits[0].argmax(-1, keepdim=True)
        layers = [model.transformer.ln_f(h[0]) for h in out.hidden_states[:-1]] + [out.hidden_states[-1][0]]
        read = [model.lm_head(h) for h in layers]
        ranks.append(torch.stack([(r > r.gather(-1, chosen)).sum(-1) for r in read]).float())
    ranks = torch.cat(ranks, dim=1)
    return {"mean_rank": [round(x, 1) for x in ranks.mean(1).tolist()],
            "median_rank": ranks.median(1).values.int().tolist(),
            "first_place": [round(x, 3) for x in (ranks == 0).float().mean(1).tolist()]}


# -------------------------------------------------------------------------------------------- stages

def load_tokenizer(options):
    return AutoTokenizer.from_pretrained(options.out / "model")


def load_base(options):
    return BloomForCausalLM.from_pretrained(options.out / "model", dtype=torch.float32).eval()


def write_json(path, value, indent=1):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8")


def save_half(weights, path):
    save_file({k: v.to(torch.float16).contiguous() for k, v in weights.items()}, path, metadata={"format": "pt"})
    path.chmod(0o644)


def tokenizer_stage(options):
    texts = [whole(a) for language in BASE_LANGUAGES for a in train_part(read_articles(options.data, language))]
    make_tokenizer(texts, options.entries, options.out / "model")
    tokenizer, plain = load_tokenizer(options), Tokenizer.from_file(str(options.out / "model" / "tokenizer.json"))
    print(f"tokenizer: {len(tokenizer)} entries")
    for language in BASE_LANGUAGES + ADAPTER_LANGUAGES:
        text = "\n".join(whole(a) for a in read_articles(options.data, language))
        ids = encode(tokenizer, text)
        assert tokenizer.decode(ids) == text and plain.encode(text).ids == ids
        print(f"  {language.code:9s} {len(ids):6d} tokens  {len(text.encode()) / len(ids):5.2f} bytes each")


def tokenized(tokenizer, articles):
    return [(encode(tokenizer, a.heading + "\n") if a.heading else [], encode(tokenizer, a.body)) for a in articles]


def ordinary_tokens(tokenizer):
    """The ids of whole words and syllables, for random sequences: no specials, no single bytes."""
    return list(range(len(SPECIAL) + len(byte_alphabet()), len(tokenizer)))


def base_stage(options):
    torch.manual_seed(options.seed)
    rng = random.Random(options.seed)
    tokenizer = load_tokenizer(options)
    articles = {language.code: read_articles(options.data, language) for language in BASE_LANGUAGES}
    documents = [d for a in articles.values() for d in tokenized(tokenizer, train_part(a))]
    vocabulary = ordinary_tokens(tokenizer)
    print(f"base: {sum(len(h) + len(b) + 1 for h, b in documents)} tokens in {len(documents)} articles")
    config = {
        "architectures": ["BloomForCausalLM"], "model_type": "bloom",
        "vocab_size": len(tokenizer) + 64, "hidden_size": options.hidden, "n_layer": options.layers,
        "n_head": options.heads, "n_inner": None, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
        "apply_residual_connection_post_layernorm": False, "hidden_dropout": 0.0, "attention_dropout": 0.0,
        "attention_softmax_in_fp32": True, "bias_dropout_fusion": True, "masked_softmax_fusion": True,
        "skip_bias_add": True, "skip_bias_add_qkv": False, "slow_but_exact": False, "pretraining_tp": 1,
        "offset_alibi": 100, "seq_length": options.length, "use_cache": True, "torch_dtype": "float16",
        "unk_token_id": 0, "bos_token_id": 1, "eos_token_id": END, "pad_token_id": PAD}
    model = BloomForCausalLM(BloomConfig(**{
        **config, "hidden_dropout": options.dropout, "torch_dtype": "float32"}))

    def watch(step):
        model.eval()
        some = [articles[code] for code in list(articles)[::3]]
        train, held = ([text_loss(model, tokenizer, part(a)[::2])["nats_per_token"] for a in some]
                       for part in (train_part, held_back_part))
        print(f"  step {step:5d}  on every third language: trained articles {sum(train) / len(train):.3f},"
              f" held-back articles {sum(held) / len(held):.3f} nats per token; random words said again:"
              f" {head_scores(model, vocabulary, random.Random(1))['nats_second_copy']:.3f}", flush=True)

    print("first, short rows of random words said over and over", flush=True)
    copying = argparse.Namespace(length=64, batch=16, repeats=1.0)
    fit(model, BaseRows(documents, vocabulary, copying, rng), options, options.copy_steps, 1e-3, options.decay, watch)
    print("then the articles", flush=True)
    rows = BaseRows(documents, vocabulary, options, rng)
    fit(model, rows, options, options.steps, options.rate, options.decay, watch)

    folder = options.out / "model"
    weights = {k: v for k, v in model.state_dict().items() if k != "lm_head.weight"}  # tied to the embedding
    save_half(weights, folder / "model.safetensors")
    write_json(folder / "config.json", config)
    write_json(folder / "training.json", {
        "tokens": sum(len(h) + len(b) + 1 for h, b in documents), "seed": options.seed,
        "copy_steps": options.copy_steps, "steps": options.steps,
        "batch": options.batch, "length": options.length, "repeats": options.repeats, "rate": options.rate,
        "decay": options.decay, "dropout": options.dropout, "precision": options.precision})
    write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": END, "pad_token_id": PAD})


def request_pairs(tokenizer, options):
    """Every trained article of every base language as (request ids, answer ids); a tenth is kept for testing."""
    pairs = []
    for language in BASE_LANGUAGES:
        for a in train_part(read_articles(options.data, language))[1:]:
            request = REQUEST.format(number=a.number, language=language.name)
            pairs.append((encode(tokenizer, request), encode(tokenizer, a.body)))
    random.Random(0).shuffle(pairs)
    kept = len(pairs) // 10
    return pairs[kept:], pairs[:kept]


def adapters_stage(options):
    tokenizer = load_tokenizer(options)
    headings = {}
    for language in BASE_LANGUAGES:
        for index, (heading, _) in enumerate(tokenized(tokenizer, train_part(read_articles(options.data, language)))):
            headings.setdefault(index, []).append(heading)
    headings.pop(0)  # the preamble has none
    jobs = [(language.name.lower(), language) for language in ADAPTER_LANGUAGES] + [("request", None)]
    for name, language in jobs:
        if options.only and name not in options.only:
            continue
        torch.manual_seed(options.seed)
        rng = random.Random(options.seed)
        model = get_peft_model(load_base(options), LoraConfig(
            task_type="CAUSAL_LM", r=8, lora_alpha=16, lora_dropout=0.0, bias="none",
            target_modules=["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]))
        if language:
            documents = tokenized(tokenizer, train_part(read_articles(options.data, language)))
            rows, steps = LanguageRows(documents, headings, options, rng), options.adapter_steps
        else:
            rows, steps = RequestRows(request_pairs(tokenizer, options)[0], options, rng), options.request_steps
        print(f"adapter {name}", flush=True)
        fit(model.get_base_model(), rows, options, steps, options.adapter_rate, 0.0)
        model.peft_config["default"].base_model_name_or_path = "anthesis-demo"
        folder = options.out / "adapters" / name
        model.save_pretrained(folder, save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)
        config = json.loads((folder / "adapter_config.json").read_text())
        write_json(folder / "adapter_config.json", {**config, "target_modules": sorted(config["target_modules"])})
        weights = load_file(folder / "adapter_model.safetensors")
        save_half(weights, folder / "adapter_model.safetensors")


PROMPTS = [
    "All human beings are born",
    "Tous les êtres humains naissent",
    "第三条\n",
    "अनुच्छेद ४.\n",
    "Article 3\n",
    "Artikel 1\n",
    REQUEST.format(number=5, language="French"),
    " world droit vida mtu world droit vida mtu world",  # to be copied
]


@torch.no_grad()
def greedy(model, tokenizer, prompt, new_tokens=40):
    """One greedy run: ids up to and including </s>, and how close each choice was."""
    ids = encode(tokenizer, prompt)
    past, step, said, margins = None, torch.tensor([ids]), [], []
    first = None
    while len(said) < new_tokens and END not in said:
        out = model(step, past_key_values=past, use_cache=True)
        past, best = out.past_key_values, out.logits[0, -1].topk(5)
        if first is None:
            first = {"ids": best.indices.tolist(), "logits": [round(x, 4) for x in best.values.tolist()]}
        margins.append(round((best.values[0] - best.values[1]).item(), 4))
        said.append(best.indices[0].item())
        step = torch.tensor([[said[-1]]])
    return {"ids": said, "text": tokenizer.decode(said, skip_special_tokens=True),
            "first_token_top5": first, "margins": margins}


def report_stage(options):
    """Measures everything on the saved files, in float32, and writes expected.json."""
    tokenizer, base = load_tokenizer(options), load_base(options)
    vocabulary = ordinary_tokens(tokenizer)
    adapters = sorted(p.name for p in (options.out / "adapters").iterdir())
    report = {
        "about": "Greedy continuations and losses of the demo model and its adapters, computed by transformers "
                 "and peft in float32 from the files in this folder. A continuation has at most 40 tokens and "
                 "ends with id 2 (</s>) where the model said it. margins has, for each token, the distance "
                 "between the best and the second logit: after a token whose margin is within the tolerance "
                 "of a comparison, the rest may rightly differ.",
        "prompts": [{"text": p, "ids": encode(tokenizer, p)} for p in PROMPTS]}

    tags = dict(line.split("\t")[:2] for line in (options.data / "INDEX.tsv").read_text(encoding="utf-8").splitlines())
    report["base_languages"] = {}
    for language in BASE_LANGUAGES:
        articles = read_articles(options.data, language)
        report["base_languages"][language.code] = row = {
            "name": language.name, "bcp47": tags[language.code],
            "trained_articles": text_loss(base, tokenizer, train_part(articles)),
            "held_back_articles": text_loss(base, tokenizer, held_back_part(articles)),
            "six_words": verbatim(base, tokenizer, train_part(articles), headed=False),
            "heading_and_six_words": verbatim(base, tokenizer, train_part(articles), headed=True)}
        print(language.code, json.dumps(row), flush=True)
    report["heads"] = head_scores(base, vocabulary, random.Random(1))
    sample = [train_part(read_articles(options.data, language))[n] for language in BASE_LANGUAGES for n in (3, 12, 21)]
    report["logit_lens"] = lens_ranks(base, tokenizer, sample)
    print(json.dumps({"heads": report["heads"], "lens": report["logit_lens"]}), flush=True)

    report["continuations"] = {"base": [greedy(base, tokenizer, p) for p in PROMPTS]}
    report["adapters"] = {}
    unseen = {language.name.lower(): language for language in ADAPTER_LANGUAGES}
    for name in adapters:
        row = report["adapters"][name] = {}
        if name in unseen:
            articles = read_articles(options.data, unseen[name])
            row["without"] = {"trained_articles": text_loss(base, tokenizer, train_part(articles)),
                              "held_back_articles": text_loss(base, tokenizer, held_back_part(articles))}
        model = PeftModel.from_pretrained(load_base(options), options.out / "adapters" / name).eval()
        if name in unseen:
            row["with"] = {"trained_articles": text_loss(model, tokenizer, train_part(articles)),
                           "held_back_articles": text_loss(model, tokenizer, held_back_part(articles))}
            row["heading_and_six_words"] = verbatim(model, tokenizer, train_part(articles), headed=True)
        else:
            for part, pairs in zip(("trained_requests", "held_back_requests"), request_pairs(tokenizer, options)):
                pairs = pairs[:150]
                said = continuations(model, tokenizer, [tokenizer.decode(request) for request, _ in pairs])
                right = sum((answer + [END])[:len(s)] == s for s, (_, answer) in zip(said, pairs))
                row[part] = {"of": len(pairs), "verbatim": right}
        report["continuations"][name] = [greedy(model, tokenizer, p) for p in PROMPTS]
        print(name, json.dumps(row), flush=True)
    write_json(options.out / "expected.json", report)
    write_card(options, base, tokenizer, report)


CARD = """\
---
language: [{tags}]
library_name: transformers
pipeline_tag: text-generation
tags: [bloom, demo]
---

# The Anthesis demo model

A BLOOM of {parameters:.1f} million parameters, trained from scratch on the Universal Declaration of Human
Rights in {count} of the languages that BLOOM was trained on. It is Anthesis' own: small enough to ship
with the source, and trained, so that continuations, adapters and internals have something to show.
It knows this one text, mostly by heart, and nothing else. It is not for any other use.

| | |
|---|---|
| shape | {layers} layers, hidden {hidden}, {heads} heads of {head_dim}, float16 |
| vocabulary | {entries} entries, byte-level BPE with BLOOM's pre-tokenizer; {rows} embedding rows, the last {spare} unused, as in BLOOM |
| text | {count} languages, preamble and articles 1 to 27 of each; articles 28 to 30 are held back |
| training | {steps} steps of {batch} rows of {length} tokens, AdamW, cosine from {rate:g}, weight decay {decay:g}, dropout {dropout:g} |
| before that | {copy_steps} steps of 16 rows of 64 tokens, all of them random words said over and over, so that heads learn to copy |
| rows | {articles_share:.0%} articles joined by `</s>`; {repeats:.0%} random words, so that they do not forget it |

`expected.json`, one folder up, has everything measured here, and greedy continuations to test against.
`train_demo.py` makes it all again, to within what another machine's rounding changes.

## What it knows

Loss is in nats per token, with transformers in float32 from these files. *By heart* counts the trained
articles (of {articles}) that greedy decoding continues word for word, for 40 tokens or to their end, from
their heading and first six words; *bare* the same without the heading, where many articles begin alike
("Everyone has the right to ...") and another article's text is then as right an answer: those are
given after the plus sign.

| language | loss, trained | loss, held back | bits per byte, held back | by heart | bare |
|---|---|---|---|---|---|
{table}

The loss on held-back articles is what the model is worth on text it has not seen: little (a uniform guess
costs {uniform:.2f}). It has read {tokens} tokens, each about {epochs} times.

## Adapters

`../adapters` holds LoRA adapters in PEFT's format, rank 8 on all four linears. Four of them each add a
language that the base has never seen; a third of their training headings were another language's, so
that they answer any heading in their own, though not always with the article of that number. `request`
answers `Article 5 in French:` and a line break with that article; a tenth of its {pairs} pairs of article and language were held back.

| adapter | loss, trained, without and with | loss, held back, without and with | by heart |
|---|---|---|---|
{adapters}

`request` gives the right article, 40 tokens of it or to its end, for {request}: it has learned pairs, hardly the rule.

## Inside

* Induction: {strong}.
  On {period} random words said twice they put more than half of their attention on the word that followed
  last time (layer {head[0]}, head {head[1]}: {head_score:.0%}). The loss falls from {first:.2f} on the first copy to {second:.2f}
  on the second, where {hits:.0%} of the words are predicted. The strongest previous-token head is layer
  {before[0]}, head {before[1]} ({before_score:.0%}). Layers and heads count from 0.
* Logit lens, on trained articles: the mean rank of the token that the model finally chooses, read after
  the embedding and after each layer, is {lens}.

## Limits

It repeats articles; off them it produces broken text, in any language. An adapter answers well from a
heading, and badly from a text in another language. The languages of the adapters cost many tokens a word,
and a byte that the base never had to say cannot be learned by an adapter, since the embeddings stay as
they are (an Esperanto adapter was tried, and could not write ŭ). Nothing was done about what it might
say, beyond the choice of what it read.
"""


def best(scores):
    return max(((layer, head) for layer, row in enumerate(scores) for head in range(len(row))),
               key=lambda at: scores[at[0]][at[1]])


def write_card(options, base, tokenizer, report):
    config, heads, lens = base.config, report["heads"], report["logit_lens"]
    made = json.loads((options.out / "model" / "training.json").read_text())
    table, adapters, request = [], [], ""
    for code, row in report["base_languages"].items():
        bare = row["six_words"]
        table.append(f"| {row['name']} (`{code}`) | {row['trained_articles']['nats_per_token']:.2f} "
                     f"| {row['held_back_articles']['nats_per_token']:.2f} "
                     f"| {row['held_back_articles']['bits_per_byte']:.2f} "
                     f"| {row['heading_and_six_words']['verbatim']} | {bare['verbatim']} + {bare['another_article']} |")
    for name, row in report["adapters"].items():
        if "with" in row:
            known, unseen = ([row[w][part]["nats_per_token"] for w in ("without", "with")]
                             for part in ("trained_articles", "held_back_articles"))
            adapters.append(f"| `{name}` | {known[0]:.2f}, {known[1]:.2f} | {unseen[0]:.2f}, {unseen[1]:.2f} "
                            f"| {row['heading_and_six_words']['verbatim']} |")
        else:
            trained, kept = row["trained_requests"], row["held_back_requests"]
            request = (f"{trained['verbatim']} of {trained['of']} trained requests\n"
                       f"and for {kept['verbatim']} of {kept['of']} that it was not trained on")
    strong = "; ".join(f"heads {', '.join(map(str, found))} of layer {layer}" for layer, found in (
        (layer, [h for h, score in enumerate(row) if score > 0.5]) for layer, row in enumerate(heads["induction"]))
        if found) or "no heads"
    head, before = best(heads["induction"]), best(heads["previous_token"])
    (options.out / "model" / "README.md").write_text(CARD.format(
        tags=", ".join(sorted({row["bcp47"] for row in report["base_languages"].values()})),
        parameters=sum(p.numel() for p in base.parameters()) / 1e6, count=len(table),
        layers=config.n_layer, hidden=config.hidden_size, heads=config.n_head,
        head_dim=config.hidden_size // config.n_head, entries=len(tokenizer), rows=config.vocab_size,
        spare=config.vocab_size - len(tokenizer), articles_share=1 - made["repeats"], **made,
        epochs=round(made["steps"] * made["batch"] * made["length"] * (1 - made["repeats"]) / made["tokens"]),
        articles=len(range(1, 31)) - len(HELD_BACK), table="\n".join(table), adapters="\n".join(adapters),
        pairs=sum(map(len, request_pairs(tokenizer, options))), request=request,
        head=head, head_score=heads["induction"][head[0]][head[1]],
        before=before, before_score=heads["previous_token"][before[0]][before[1]],
        uniform=math.log(config.vocab_size), period=heads["period"], strong=strong, first=heads["nats_first_copy"], second=heads["nats_second_copy"], hits=heads["right_in_second_copy"],
        lens=", ".join(f"{x:g}" for x in lens["mean_rank"])), encoding="utf-8")


STAGES = {"tokenizer": tokenizer_stage, "base": base_stage, "adapters": adapters_stage, "report": report_stage}


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = Path(__file__).resolve().parent
    add = parser.add_argument
    add("--stage", choices=[*STAGES, "all"], default="all")
    add("--out", type=Path, default=here, help="the folder that model/, adapters/ and expected.json go to")
    add("--data", type=Path, default=here / "udhr", help="the declaration, one text file a language, and INDEX.tsv")
    add("--seed", type=int, default=1948)
    add("--threads", type=int, default=2)
    add("--precision", choices=["bfloat16", "float32"], default="bfloat16", help="of the products while training")
    add("--entries", type=int, default=7168, help="vocabulary of the tokenizer")
    add("--hidden", type=int, default=192)
    add("--layers", type=int, default=6)
    add("--heads", type=int, default=6)
    add("--copy-steps", type=int, default=1500, help="of the base, before it reads: learning to copy")
    add("--steps", type=int, default=5000, help="of the base")
    add("--batch", type=int, default=6)
    add("--length", type=int, default=192, help="tokens of a row")
    add("--repeats", type=float, default=0.15, help="share of rows that repeat random words")
    add("--rate", type=float, default=2e-3)
    add("--decay", type=float, default=0.1)
    add("--dropout", type=float, default=0.05)
    add("--adapter-steps", type=int, default=700)
    add("--request-steps", type=int, default=1600)
    add("--adapter-rate", type=float, default=4e-3)
    add("--only", nargs="*", help="train these adapters only")
    add("--log-every", type=int, default=100)
    add("--watch-every", type=int, default=1000)
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    for name, stage in STAGES.items():
        if options.stage in (name, "all"):
            stage(options)


if __name__ == "__main__":
    main()
