"""`livejoin stream`: the pipelines of a stream.toml."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from service.commands.terminal import Failure, Parser


def main(arguments: list[str]) -> int:
    parser = Parser("stream", "Run the pipelines of a file: from Kafka through Spark into the service.")
    parser.add_argument("--config", required=True, type=Path, metavar="FILE", help="the stream.toml")
    args = parser.parse_args(arguments)
    # By name: `streaming` stands above `service`, and comes with livejoin[stream].
    try:
        room = import_module("streaming.cli")
    except ModuleNotFoundError as error:
        raise Failure(f"streaming needs {error.name}: install it with pip install 'livejoin[stream]'") from error
    status: int = room.run(args.config)
    return status
