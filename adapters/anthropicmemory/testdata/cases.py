"""Runs cases of the memory tool on Anthropic's own Python class and on the Python adapter, and compares their answers with those in the file.

    python cases.py [--record] [--only upstream|adapter] FILE...

A case has a name and steps; a step has an input and its text, or its error. --record writes what upstream's class answers. The sizes of directories, which
depend on the file system, are those of the Go package. Without the package ctxpage the adapter is left out.
"""

import json
import sys
import tempfile
import types

from anthropic.lib.tools import _beta_builtin_memory_tool as upstream
from anthropic.lib.tools._beta_functions import ToolError


def answer(tool, command):
    try:
        text = tool.execute(types.SimpleNamespace(**{"view_range": None, **command}))
    except ToolError as e:
        return {"error": str(e)}
    lines = text.split("\n")
    if lines[0].startswith("Here're the files"):
        lines = [lines[0]] + ["4K\t" + l.partition("\t")[2] if n == 0 or l.endswith("/") else l for n, l in enumerate(lines[1:])]
    return {"text": "\n".join(lines)}


def tools(only):
    out = {}
    if only != "adapter":
        out["upstream"] = lambda name: upstream.BetaLocalFilesystemMemoryTool(tempfile.mkdtemp(prefix="memory-"))
    if only == "upstream":
        return out
    try:
        import ctxpage
        from ctxpage.adapters.anthropic import CtxpageMemoryTool
    except ImportError:
        print("ctxpage is not installed: the Python adapter is left out")
        return out
    db = ctxpage.open(tempfile.mkdtemp(prefix="memory-") + "/agent.ctx", idle="2s")
    out["adapter"] = lambda name: CtxpageMemoryTool(db.scope(name))
    return out


def main(args):
    record = "--record" in args
    only = args[args.index("--only") + 1] if "--only" in args else ""
    files = [a for a in args if a.endswith(".json")]
    bad = 0
    for make_name, make in tools("upstream" if record else only).items():
        for file in files:
            with open(file, encoding="utf-8") as f:
                cases = json.load(f)
            steps = 0
            for number, case in enumerate(cases):
                tool = make(f"case-{len(file)}-{number}")
                for step in case["steps"]:
                    steps += 1
                    got = answer(tool, step["input"])
                    if record:
                        step.pop("text", None), step.pop("error", None)
                        step.update(got)
                    elif got != {k: v for k, v in step.items() if k != "input"}:
                        bad += 1
                        if bad <= 5:
                            print(f"{make_name}: {case['name']}: {step['input']}\n  answers  {got}\n  expected { {k: v for k, v in step.items() if k != 'input'} }")
            print(f"{make_name}: {file.rpartition('/')[2]}: {len(cases)} cases, {steps} steps")
            if record:
                with open(file, "w", encoding="utf-8") as f:
                    json.dump(cases, f, indent=1, ensure_ascii=False)
                    f.write("\n")
    if bad:
        sys.exit(f"{bad} answers differ")


main(sys.argv[1:])
