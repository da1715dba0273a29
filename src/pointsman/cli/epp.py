"""`pointsman epp`: run the endpoint picker, or check its configuration without running it."""

import random
import sys
import time
from pathlib import Path

from cyclopts import App

from pointsman.core import loop
from pointsman.core.logs import configure_logs, get_logger
from pointsman.epp.settings import Settings

epp = App(name="epp", help="Run the endpoint picker that Envoy's ext_proc filter asks, or check its configuration.")


@epp.default
def run(settings: Settings | None = None) -> None:
    """Run the endpoint picker that Envoy's ext_proc filter asks, with the flags of the Go picker."""
    from pointsman.epp.server import PickerServer

    settings = settings or Settings()
    configure_logs(verbosity=settings.verbosity, encoding=settings.zap_encoder)
    for flag in settings.without_effect():
        get_logger(__name__).warning("epp: flag has no effect in this version", flag=flag)

    async def main() -> None:
        await PickerServer(settings, rng=random.Random()).run()  # noqa: S311 - spreads load, guards nothing

    loop.serve(main())


@epp.command
def check(file: Path, *, allow_experimental_plugins: bool = False) -> int:
    """Print the effective configuration of FILE, or everything that is wrong with it.

    Warnings go to stderr. Exits with 2 when the picker would not start with this file.
    """
    from pointsman.core.values import ConfigError
    from pointsman.epp.config.build import Builder
    from pointsman.epp.config.defaults import draft
    from pointsman.epp.config.follow import allow_imports, read_text

    allow_imports(file.parent)
    try:
        plan, problems = draft(read_text(file), name=str(file), allow_experimental=allow_experimental_plugins)
        builder = Builder(clock=time.monotonic, rng=random.Random(0))  # noqa: S311 - draws nothing
        built = builder.build(plan, problems=problems, name=str(file))
    except ConfigError as error:
        sys.stderr.write("".join(f"{file}: {problem}\n" for problem in error.problems))
        return error.exit_code
    sys.stderr.write("".join(f"{file}: warning: {warning}\n" for warning in plan.warnings))
    sys.stdout.write(built.to_yaml())
    return 0
