"""The memory tool of the Go package, as the Python adapter has it."""

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool
from anthropic.lib.tools._beta_functions import ToolError


class Files:
    def __init__(self, scope):
        self.scope = scope

    def page(self, name, text):
        return {"id": name, "text": text}

    def read(self, name):
        got = self.scope.ask(get=name)
        return None if got.get("absent") else got["text"]

    def below(self, name):
        return [i for i in self.scope.ask(below=name + "/")["ids"] or [] if i != name + "/"]

    def is_dir(self, name):
        return name == "memories" or bool(self.scope.ask(below=name + "/")["ids"])

    def run(self, command):
        fields = command if isinstance(command, dict) else command.to_dict()
        got = self.scope.ask(command=fields)
        if got.get("error"):
            raise ToolError(got["error"])
        return got["text"]


class CtxpageMemoryTool(BetaAbstractMemoryTool):
    def __init__(self, scope):
        super().__init__()
        self.files = Files(scope)

    def view(self, command):
        return self.files.run(command)

    create = str_replace = insert = delete = rename = view


class CtxpageAsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    def __init__(self, scope):
        super().__init__()
        self.files = Files(scope)

    async def view(self, command):
        return self.files.run(command)

    create = str_replace = insert = delete = rename = view
