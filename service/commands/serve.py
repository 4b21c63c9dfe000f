"""`livejoin serve`: runs the service until it is told to stop."""

from __future__ import annotations

from service.settings import BadSetting, Settings, size_text, variable
from service.terminal import Failure, Parser


def main(arguments: list[str]) -> int:
    parser = Parser("serve", "Run the service until Ctrl-C or SIGTERM. Options can also be set by the variables in parentheses.")
    for name, field in Settings.model_fields.items():
        default = size_text(field.default) if name in ("max_body", "pin_bytes") else field.default
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, help=f"{field.description} ({variable(name)}, {default})")
    args = parser.parse_args(arguments)
    try:
        settings = Settings.read(vars(args))
    except BadSetting as error:
        raise Failure(str(error), 2) from error
    from service.server import serve  # takes a second to import

    status: int = serve(settings)
    return status
