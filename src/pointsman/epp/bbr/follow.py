"""What the router follows while it serves: the file that lists the models, and ConfigMaps that name adapters."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.core.errors import UserError
from pointsman.core.logs import get_logger
from pointsman.core.watch import watch_files
from pointsman.epp.bbr.adapters import Adapters
from pointsman.epp.bbr.models import Models
from pointsman.epp.extproc.health import Health

if TYPE_CHECKING:  # imported where a cluster is used
    from pointsman.kube.client import Client

log = get_logger(__name__)


async def follow_adapters(client: "Client", *, adapters: Adapters, health: Health) -> None:
    """Follow ConfigMaps; ready once the API server has answered, be it with a refusal."""
    from pointsman.epp.bbr.configmaps import followers  # only where there is a cluster: it takes long to import

    made = followers(client, adapters=adapters)
    async with asyncio.TaskGroup() as tasks:
        for each in made:
            tasks.create_task(each.run())
        for each in made:
            await each.answered.wait()
        health.note("adapters", obstacle="")


async def follow_models(models: Models, *, path: Path) -> None:
    """Follow the file that lists the models; one that cannot be read leaves the last good one in use."""
    async for (content,) in watch_files([path]):
        try:
            take_models(content, models=models, path=path)
        except UserError as error:
            log.warning("bbr: the list of models is not used, the last good one stays", reason=str(error))


def take_models(content: bytes | None, *, models: Models, path: Path) -> None:
    """Use a list of models. Raises UserError when it cannot be used as a whole."""
    if content is None:
        raise UserError(f"{path}: cannot be read: name a file that lists the models")
    for each in models.take(content, name=str(path)):
        log.warning("bbr: an entry of the list of models is not used", file=str(path), reason=each)
