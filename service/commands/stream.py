"""`livejoin stream`: runs the pipelines of a stream.toml."""

from __future__ import annotations

from livejoin.terminal import Failure, Parser, imported


def main(arguments: list[str]) -> int:
    # By name: `streaming` is a layer above `service`, and is installed with livejoin[kafka].
    try:
        room = imported("streaming.cli")
    except ModuleNotFoundError as error:
        raise Failure(f"stream needs {error.name}, which is not installed: install livejoin[kafka]") from error
    parser = Parser("stream", "Run the pipelines in a file: from Kafka through Spark into the service, and from its views to Kafka.")
    room.add_arguments(parser)
    status: int = room.command(parser.parse_args(arguments))
    return status
