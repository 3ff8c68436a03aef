"""How the SDK suites tell what they saw: one JSON line per check, and one at the end."""

import json
import os
import sys

#: Against a scripted engine (tests/clients/script.json) everything is tried; against a genuine one only what any model gives.
SCRIPTED = os.environ.get("ENGINE", "scripted") == "scripted"

_all_hold = True


def check(says, holds):
    """One sentence and whether it holds."""
    global _all_hold
    _all_hold = _all_hold and bool(holds)
    print(json.dumps({"says": says, "holds": bool(holds)}), flush=True)


def raises(kind, call):
    """The error of that class that a call ends with; None, and a line on stderr, when it ends otherwise."""
    try:
        call()
    except kind as error:
        return error
    except Exception as error:  # any other class is what the check reports
        print(f"expected {kind.__name__}, got {type(error).__name__}: {error}", file=sys.stderr)
        return None
    print(f"expected {kind.__name__}, and nothing was raised", file=sys.stderr)
    return None


def parts(*functions):
    """Does one part after the other; what a part throws is a check that does not hold, and the next one goes on."""
    for part in functions:
        try:
            part()
        except Exception as error:
            check(f"{part.__doc__ or part.__name__}: {type(error).__name__}: {error}", False)
    print(json.dumps({"end": True}), flush=True)
    sys.exit(0 if _all_hold else 1)
