"""`livejoin backup`: asks a running service for a backup, and ends when it is complete."""

from __future__ import annotations

import time
from typing import Any

from livejoin.commands.bars import bars
from livejoin.commands.connection import connect
from livejoin.terminal import Failure, Parser, add_url

_POLL = 0.1  # seconds

_DESCRIPTION = """Back up a running service. The service writes the backup to TARGET, a new or empty folder on its own machine,
and accepts batches in the meantime. The command ends when the backup is complete; interrupting it does not stop the
backup."""


def main(arguments: list[str]) -> int:
    parser = Parser("backup", _DESCRIPTION)
    parser.add_argument("target", metavar="TARGET", help="the absolute path of a new or empty folder on the service's machine")
    parser.add_argument("--since", metavar="BACKUP", help="the folder of an earlier backup: write only what is newer")
    add_url(parser)
    args = parser.parse_args(arguments)
    with connect(args) as client:
        state = client.start_backup(args.target, args.since)
        id_ = state["id"]
        with bars() as shown:
            task = shown.add_task("backup", total=1.0)
            while state["state"] == "running":
                time.sleep(_POLL)
                state = _of(id_, client.backup())
                shown.update(task, completed=state.get("progress", 0.0))
    if state["state"] != "done":
        raise Failure(f"no backup was made in {args.target}: {state['problem']}")
    since = f" since {args.since}" if args.since else ""
    print(f"backup     {args.target}, version {state['version']}{since}, {state['bytes']:,} bytes")
    return 0


def _of(id_: str, emitted: dict[str, Any]) -> dict[str, Any]:
    """Return the state of this backup from the service's answer: another one may have been started since."""
    for state in (emitted, emitted.get("previous", {})):
        if state.get("id") == id_:
            return dict(state)
    lost = "the service was restarted before the backup was complete: remove the folder and repeat the command"
    if emitted["state"] != "none":
        lost = "the service has made other backups since and no longer reports on this one: `livejoin check` shows whether it is complete"
    return {"state": "unknown", "problem": lost}
