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
def check(file: Path, *, allow_experimental_plugins: bool = False, strict: bool = False) -> int:
    """Print the effective configuration of FILE, or everything that is wrong with it.

    Warnings go to stderr. Exits with 2 when the picker would not start with this file.

    Parameters
    ----------
    file
        EndpointPickerConfig file.
    allow_experimental_plugins
        Allow plugins that llm-d calls alpha.
    strict
        Refuse warnings, too.

    """
    from pointsman.core.values import ConfigError
    from pointsman.epp.assembly import read_configuration

    settings = Settings(config_file=file, allow_experimental_plugins=allow_experimental_plugins)
    try:
        rng = random.Random(0)  # noqa: S311 - draws nothing
        built = read_configuration(settings, clock=time.monotonic, rng=rng)[1].current
    except ConfigError as error:
        sys.stderr.write("".join(f"{file}: {problem}\n" for problem in error.problems))
        return error.exit_code
    warnings = built.plan.warnings
    sys.stderr.write("".join(f"{file}: {'' if strict else 'warning: '}{warning}\n" for warning in warnings))
    if strict and warnings:
        return ConfigError.exit_code
    sys.stdout.write(built.to_yaml())
    return 0
