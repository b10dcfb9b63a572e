"""Writes model.onnx for a BERT that embeds sentences, from its model.safetensors, with the operators that hugot's Go backend has.

    python3 -m venv v && v/bin/pip install onnx numpy
    v/bin/python export.py FOLDER        model.onnx beside model.safetensors and config.json
    v/bin/python export.py --tiny        the model of the tests, in tiny/, with random weights of a fixed seed, and its vectors by numpy
"""

import json
import math
import os
import struct
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def safetensors(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(size))
        body = f.read()
    out = {}
    for name, t in head.items():
        if name != "__metadata__" and t["dtype"] == "F32":
            begin, end = t["data_offsets"]
            out[name.removeprefix("bert.")] = np.frombuffer(body[begin:end], dtype="<f4").reshape(t["shape"])
    return out


def graph(w, config):
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    eps, each = config["layer_norm_eps"], hidden // heads
    nodes, constants = [], {}

    def const(name, value):
        constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def op(kind, *inputs, **attributes):
        out = f"{kind}_{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [out], **attributes))
        return out

    def dense(x, name):
        return op("Add", op("MatMul", x, const(name + ".w", w[name + ".weight"].T)), const(name + ".b", w[name + ".bias"]))

    def norm(x, name):
        return op("LayerNormalization", x, const(name + ".w", w[name + ".weight"]), const(name + ".b", w[name + ".bias"]), axis=-1, epsilon=eps)

    def number(name, *values, kind=np.int64):
        return const(name, np.array(values, dtype=kind))

    e = "embeddings."
    length = op("Slice", op("Shape", "input_ids"), number("1", 1), number("2", 2), number("0", 0))
    position = op("Slice", const("position", w[e + "position_embeddings.weight"]), number("from", 0), length, number("axis", 0))
    x = op("Add", op("Gather", const("word", w[e + "word_embeddings.weight"]), "input_ids"), op("Gather", const("type", w[e + "token_type_embeddings.weight"]), "token_type_ids"))
    x = norm(op("Add", x, position), e + "LayerNorm")
    mask = op("Unsqueeze", op("Cast", "attention_mask", to=TensorProto.FLOAT), number("axes", 1, 2))
    mask = op("Mul", op("Sub", const("one", np.float32(1)), mask), const("low", np.float32(-1e9)))
    shape, flat = number("heads", 0, 0, heads, each), number("flat", 0, 0, hidden)
    for n in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{n}."
        q, k, v = (op("Transpose", op("Reshape", dense(x, at + "attention.self." + part), shape), perm=[0, 2, 1, 3]) for part in ("query", "key", "value"))
        scores = op("Div", op("MatMul", q, op("Transpose", k, perm=[0, 1, 3, 2])), const("scale", np.float32(math.sqrt(each))))
        mixed = op("MatMul", op("Softmax", op("Add", scores, mask), axis=-1), v)
        mixed = op("Reshape", op("Transpose", mixed, perm=[0, 2, 1, 3]), flat)
        x = norm(op("Add", dense(mixed, at + "attention.output.dense"), x), at + "attention.output.LayerNorm")
        y = dense(x, at + "intermediate.dense")
        gelu = op("Mul", op("Mul", y, const("half", np.float32(0.5))), op("Add", op("Erf", op("Div", y, const("root", np.float32(math.sqrt(2))))), "one"))
        x = norm(op("Add", dense(gelu, at + "output.dense"), x), at + "output.LayerNorm")
    nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"]))
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "sequence"]) for n in ("input_ids", "attention_mask", "token_type_ids")]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "sequence", hidden])
    g = helper.make_graph(nodes, "bert", inputs, [output], list(constants.values()))
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


TINY = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 32, "layer_norm_eps": 1e-12,
        "max_position_embeddings": 32, "pad_token_id": 0, "vocab_size": 20}  # fmt: skip
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "fox", "dog", "jump", "##s", "over", "lazy", "a", "b", "c", ".", ",", "refund", "order", "is", "paid"]


def tiny_weights():
    r, h, i = np.random.default_rng(1), TINY["hidden_size"], TINY["intermediate_size"]
    w = {}

    def put(name, *shape):
        w[name] = (r.standard_normal(shape) * 0.3).astype(np.float32)

    def norm(name):
        put(name + ".weight", h), put(name + ".bias", h)

    put("embeddings.word_embeddings.weight", len(WORDS), h), put("embeddings.position_embeddings.weight", 32, h), put("embeddings.token_type_embeddings.weight", 2, h)
    norm("embeddings.LayerNorm")
    for n in range(TINY["num_hidden_layers"]):
        at = f"encoder.layer.{n}."
        for name, a, b in (("attention.self.query", h, h), ("attention.self.key", h, h), ("attention.self.value", h, h), ("attention.output.dense", h, h),
                           ("intermediate.dense", i, h), ("output.dense", h, i)):  # fmt: skip
            put(at + name + ".weight", a, b), put(at + name + ".bias", a)
        norm(at + "attention.output.LayerNorm"), norm(at + "output.LayerNorm")
    return w


def by_numpy(w, ids):
    """The vector of a sentence, written once more without ONNX."""
    erf = np.vectorize(math.erf)

    def dense(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + TINY["layer_norm_eps"]) * w[name + ".weight"] + w[name + ".bias"]

    w = {k: v.astype(np.float64) for k, v in w.items()}
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: len(ids)] + w["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings.LayerNorm")
    heads = TINY["num_attention_heads"]
    for n in range(TINY["num_hidden_layers"]):
        at = f"encoder.layer.{n}."
        q, k, v = (np.split(dense(x, at + "attention.self." + p), heads, axis=1) for p in ("query", "key", "value"))
        mixed = []
        for a in range(heads):
            s = np.exp(q[a] @ k[a].T / math.sqrt(q[a].shape[1]))
            mixed.append(s / s.sum(-1, keepdims=True) @ v[a])
        x = norm(dense(np.concatenate(mixed, axis=1), at + "attention.output.dense") + x, at + "attention.output.LayerNorm")
        y = dense(x, at + "intermediate.dense")
        x = norm(dense(y * 0.5 * (1 + erf(y / math.sqrt(2))), at + "output.dense") + x, at + "output.LayerNorm")
    mean = x.mean(0)
    return (mean / np.linalg.norm(mean)).tolist()


def tiny(folder):
    w = tiny_weights()
    onnx.save(graph(w, TINY), folder + "/model.onnx")
    special = [{"id": n, "content": WORDS[n], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for n in range(4)]
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
                           "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
                           "special_tokens": {n: {"id": n, "ids": [WORDS.index(n)], "tokens": [n]} for n in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {word: n for n, word in enumerate(WORDS)}},
    }  # fmt: skip
    sentences = {"The fox jumps over the lazy dog.": [2, 4, 5, 7, 8, 9, 4, 10, 6, 14, 3], "is the refund paid": [2, 18, 4, 16, 19, 3], "order": [2, 17, 3]}
    for name, value in (("tokenizer", tokenizer), ("config", TINY), ("vectors", {s: by_numpy(w, ids) for s, ids in sentences.items()})):
        with open(f"{folder}/{name}.json", "w") as f:
            json.dump(value, f, indent=1)
            f.write("\n")


if sys.argv[1] == "--tiny":
    tiny(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tiny"))
else:
    with open(sys.argv[1] + "/config.json") as f:
        onnx.save(graph(safetensors(sys.argv[1] + "/model.safetensors"), json.load(f)), sys.argv[1] + "/model.onnx")
