"""Stands in for the Python client of ctxpage where upstream's tests run on the Go package: clients/python/tests/upstream/ctxpage_upstream.py swaps upstream's
class for CtxpageMemoryTool, and the one here asks the driver (DRIVER names its binary).
"""

import json
import os
import subprocess
import threading


class CtxpageError(Exception):
    pass


class Scope:
    def __init__(self, db, name):
        self.db, self.name = db, name

    def ask(self, **request):
        return self.db.ask({"scope": self.name, **request})

    def put(self, id, text):
        self.ask(put={"id": id, "text": text})


class Database:
    def __init__(self, path):
        self.process = subprocess.Popen([os.environ["DRIVER"], path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lock = threading.Lock()

    def ask(self, request):
        with self.lock:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())

    def scope(self, name):
        return Scope(self, name)

    def operator(self, name):
        return self

    def stop(self):
        self.process.stdin.close()
        assert self.process.wait() == 0

    def close(self):
        pass


def open(path, idle=""):
    return Database(path)
