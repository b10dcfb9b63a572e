"""A conversation with memory, against `dbctl serve agent.ctx`. Standard library only.

    python3 chat.py agent.ctx.api.sock "what may I refund?"
"""
import http.client
import json
import socket
import sys


class Memory(http.client.HTTPConnection):
    """One connection to the socket, bound to a scope, an actor and a role."""

    def __init__(self, path, scope, actor, role="host"):
        super().__init__("ctxpage", timeout=60)
        self.path, self.key = path, None
        self.key = self.call("hello", scope=scope, actor=actor, role=role)["key"]

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)

    def call(self, name, **arguments):
        headers = {"Ctxpage-Key": self.key} if self.key else {}
        self.request("POST", "/v1/" + name, json.dumps(arguments), headers)
        response = self.getresponse()
        answer = json.load(response)
        if response.status != 200:
            raise MemoryFailure(answer["error"])
        return answer


class MemoryFailure(Exception):
    """What the memory refused: code is stable, held has a batch that a person decides about."""

    def __init__(self, error):
        super().__init__(error["message"])
        self.code, self.error = error["code"], error


def main(path, question):
    memory = Memory(path, "acme/support", "chat.py")
    memory.call("put", writes=[{"id": "policy", "text": "Refunds up to $400 need no approval."}])
    asked = memory.call("session/append", session="chat-1", turns=[{"role": "user", "text": question}])
    context = memory.call("assemble", query=question, budget=2000, session="chat-1")
    answer = "You may refund up to $400."  # a model would be asked here, with context["text"]
    memory.call("session/append", session="chat-1", turns=[{"role": "assistant", "text": answer, "trace": context["trace"]}])
    kept = memory.call("commit", trace=context["trace"], writes=[{"id": "answer", "text": answer}], verdict={"confidence": 0.9, "by": "reviewer"})
    try:
        memory.call("commit", trace=context["trace"], writes=[{"id": "guess", "text": "Or more."}])
    except MemoryFailure as failure:
        print("without a verdict:", failure.code)
    print("committed:", kept["refs"][0])
    print("recalled:", memory.call("get", ref=asked["refs"][0])["text"])


if __name__ == "__main__":
    main(*sys.argv[1:3])
