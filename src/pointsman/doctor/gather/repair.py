"""Make a change that a finding proposes."""

from pointsman.doctor.repairs import Repair
from pointsman.kube.client import Client
from pointsman.kube.errors import ApiError

_MANAGER = {"fieldManager": "pointsman-doctor"}


async def apply(client: Client, repair: Repair) -> str:
    """Make the change; return why the API server refused it, nothing when it took it."""
    try:
        if repair.how == "delete":
            await client.delete(repair.kind, repair.key)
        else:
            await client.patch(repair.kind, repair.key, repair.body, how=repair.how, parameters=_MANAGER)
    except ApiError as error:
        return str(error)
    return ""
