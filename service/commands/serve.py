"""`livejoin serve`: runs the service until it is told to stop."""

from __future__ import annotations

import faulthandler
import sys

from livejoin.terminal import Failure, Parser, imported
from service.settings import BadSetting, read_settings, settings


def main(arguments: list[str]) -> int:
    parser = Parser("serve", "Run the service until Ctrl-C or SIGTERM. Each option has an environment variable, shown in parentheses.")
    for one in settings():
        text = f"{one.purpose} ({one.variable}; default: {one.default})"
        parser.add_argument(one.flag, dest=one.name, metavar=one.metavar, help=text)
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    try:
        chosen = read_settings(given)
    except BadSetting as error:
        raise Failure(str(error), 2) from error
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)  # if native code crashes, standard error shows where each thread was
    status: int = imported("service.server").serve(chosen)  # takes a second to import
    return status
