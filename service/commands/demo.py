"""`livejoin demo`: see `service.demo`."""

from __future__ import annotations

import os
import shlex

import livejoin
from livejoin.terminal import Failure, Parser, say
from service.demo.kafka import free_port
from service.demo.play import play, produce

PORT = 8080


def main(arguments: list[str]) -> int:
    parser = Parser("demo", "Serve terms of office in the United States, replay their history since 1789, and suggest commands to try.")
    parser.add_argument("--port", type=int, help=f"the port of the service ({PORT}, or a free port if it is in use)")
    parser.add_argument("--pace", type=float, default=0.6, help="years of history per second from 1989 on (0.6); earlier, 20 times as many")
    parser.add_argument("--no-kafka", action="store_true", help="send all changes by REST, without Kafka and Spark")
    parser.add_argument("--prepare", metavar="COMMAND", help="run while the service starts, to install what Kafka and Spark need")
    parser.add_argument("--brokers", metavar="LIST", help="only produce the records to these Kafka brokers, for a running livejoin stream")
    parser.add_argument("--url", help="with --brokers: the URL of the service (LIVEJOIN_URL)")
    args = parser.parse_args(arguments)
    if not args.pace > 0:
        raise Failure("--pace must be greater than 0", 2)
    if args.brokers:
        return produce(args.url or os.environ.get("LIVEJOIN_URL") or livejoin.DEFAULT_URL, args.brokers, args.pace)
    if args.url:
        raise Failure("--url needs --brokers: without --brokers, the demo starts its own service", 2)
    port = free_port(args.port or PORT)
    if not port:
        if args.port:
            raise Failure(f"port {args.port} is in use: choose another port, or omit --port")
        port = free_port()
        say(f"port {PORT} is in use; the service listens on {port} instead")
    return play(port, args.pace, not args.no_kafka, shlex.split(args.prepare or ""))
