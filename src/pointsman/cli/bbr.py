"""`pointsman bbr`: run the body-based router, which llm-d calls payload processor."""

from cyclopts import App

from pointsman.core import loop
from pointsman.core.logs import configure_logs
from pointsman.epp.bbr.settings import BbrSettings

bbr = App(name="bbr", help="Run the body-based router: which pool a request is for, by the model in its body.")


@bbr.default
def run(settings: BbrSettings | None = None) -> None:
    """Run the body-based router, with the flags of the Go one."""
    from pointsman.epp.bbr.server import BbrServer

    settings = settings or BbrSettings()
    configure_logs(verbosity=settings.verbosity, encoding=settings.zap_encoder)

    async def main() -> None:
        await BbrServer(settings).run()

    loop.serve(main())
