"""What of an object somebody wrote, apart from what the control plane counts and reports about it in its own time."""

from pointsman.kube import Object


def written(live: Object) -> Object:
    """Return an object without status and resource version, which change when nobody touched it."""
    metadata = {name: value for name, value in live["metadata"].items() if name != "resourceVersion"}
    fields = [entry for entry in metadata.get("managedFields", ()) if entry.get("subresource") != "status"]
    rest = {name: value for name, value in live.items() if name != "status"}
    return rest | {"metadata": metadata | {"managedFields": fields}}
