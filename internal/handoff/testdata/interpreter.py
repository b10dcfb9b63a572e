"""Runs contracts through the interpreter of the language (liminate, from PyPI).

One JSON text a line comes in, a contract; one JSON object a line goes out: the
errors with their lines, and what is remembered at the end, by name.
"""
import json
import sys
from datetime import date

import liminate
from liminate.cli import load_pack_from_arg

# The verbs of the pack for sessions.
PACK = {
    "name": "session",
    "verbs": [
        {
            "word": "cite",
            "slots": [
                {"name": "text", "connective": None, "required": True, "value_type": "value"},
                {"name": "source", "connective": "from", "required": True},
            ],
            "execution": {"type": "substring_check", "check_slot": "text", "against_slot": "source"},
        },
        {
            "word": "verify",
            "slots": [
                {"name": "claim", "connective": None, "required": True},
                {"name": "source", "connective": "from", "required": True},
            ],
            "execution": {
                "type": "compare_values", "left_slot": "claim", "right_slot": "source", "comparison": "structural",
                "on_mismatch": "error", "status_target": "verification-status", "details_target": "verification-divergences",
            },
        },
    ],
}
FAULTS = {"error_parse", "error_semantic", "error_runtime", "amber_precedence", "amber_ambiguity", "pack_verb_failure"}


def said(value):
    """A value as [kind, text], a list as its items, a record as its fields."""
    if isinstance(value, bool) or value is None:
        return ["other", str(value)]
    if isinstance(value, (int, float)):
        return ["number", str(int(value)) if float(value).is_integer() else repr(value)]
    if isinstance(value, date):
        return ["date", value.isoformat()]
    if isinstance(value, str):
        return ["string", value]
    if isinstance(value, list):
        return ["list", [said(v) for v in value]]
    if isinstance(value, dict):
        return ["record", {k: said(v) for k, v in value.items()}]
    return ["other", type(value).__name__]


def run(contract):
    packs = [load_pack_from_arg(json.dumps(PACK))]
    try:
        done = liminate.run(contract, domain_packs=packs, enter_phase2=False)
    except Exception as e:  # a fault of the interpreter's own
        return {"errors": [{"line": 0, "status": "crash", "message": repr(e)}], "names": {}}
    errors = [
        {"line": r.line or 0, "status": r.status.value, "message": r.message or ""}
        for r in done.results if r.status.value in FAULTS
    ]
    return {"errors": errors, "names": {n: said(e.value) for n, e in done.symbol_table.items()}}


for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
