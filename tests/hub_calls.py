"""Calls of vlaprep in processes of their own, against the loopback Hub."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hub_server import READ_TOKEN, TOKEN

if TYPE_CHECKING:
    from pathlib import Path

    from hub_server import HubServer

# Each call is one JSON object on the command line, and one line of the answer.
CODE = """
import importlib, json, logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
for options in map(json.loads, sys.argv[1:]):
    module, _, name = options.pop("call").rpartition(".")
    call = getattr(importlib.import_module(module), name)
    try:
        answer = call(*options.pop("args", ()), **options)
    except Exception as error:
        answer = {"error": [kind.__name__ for kind in type(error).__mro__], "message": str(error)}
    print(json.dumps(answer, default=str))
"""


def ask(hub: HubServer, home: Path, *calls: dict[str, Any], **env: str) -> Any:
    """Answers of these calls, made one after the other in one process; of one call, its answer."""
    asked = [json.dumps(call, default=str) for call in calls]
    ran = hub.run(CODE, home, args=tuple(asked), **env)
    assert ran.returncode == 0, ran.stderr
    for token in (TOKEN, READ_TOKEN):
        assert token not in ran.stdout + ran.stderr
    assert "%|" not in ran.stderr, "no progress bars where stderr is no terminal"
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(answers) == len(asked), "a library prints nothing"
    return answers if len(calls) > 1 else answers[0]


def refused(answer: Any, kind: str, *words: str) -> None:
    """Assert that a call raised this class, with these words in its message."""
    assert isinstance(answer, dict), f"expected an error, got {answer}"
    assert kind in answer["error"], answer
    for word in words:
        assert word in answer["message"], answer["message"]
