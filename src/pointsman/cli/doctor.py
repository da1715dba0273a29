"""`pointsman doctor`: look at a cluster, or at the stack on this machine, from the client to the model servers, and
name the first cause of trouble with its remedy.

Exit 0: all is well. Exit 1: something failed. Exit 3: warnings alone. Exit 2: the command line is wrong.
"""

import asyncio
import io
import json
import os
import secrets
import sys
import tarfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from pointsman.cli import doctor_local
from pointsman.core.errors import UserError
from pointsman.core.kinds import key_of
from pointsman.doctor import checks, report
from pointsman.doctor.cluster.chain import examine
from pointsman.doctor.cluster.facts import Focus
from pointsman.doctor.cluster.path import leads_to_models
from pointsman.doctor.findings import Finding
from pointsman.doctor.gather.cluster import Gathered, Wish, gather
from pointsman.doctor.gather.reach import Reach, kubectl
from pointsman.doctor.gather.repair import apply
from pointsman.doctor.redact import redact, redact_text
from pointsman.doctor.repairs import Repair
from pointsman.kube import Client, connect
from pointsman.local.state import Folder, default_folder

_MOST_ROUNDS = 5
_SETTLE_SECONDS = 1.0  # a gateway has a change of an object within a second
Switch = Annotated[bool, Parameter(negative=())]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Where:
    """Which cluster, and which way through it."""

    kubeconfig: Path | None = None
    "Cluster to look at; else KUBECONFIG or the home file, as kubectl takes them."
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"])] = ""
    "Namespace of the Gateway; any when left out."
    gateway: str = ""
    "Name of the Gateway; the only one that leads to models when left out."
    route: str = ""
    "Name of the HTTPRoute; the first that leads to models when left out."
    envoy: str = ""
    "Where the gateway's Envoy admin is, such as http://127.0.0.1:15000; else it is found, with kubectl if need be."
    url: str = ""
    "Where requests are sent, such as http://127.0.0.1:8080; else the gateway's Pod."
    model: str = ""
    "Model to ask for; else the first that a model server names."
    reader: str = ""
    "NAMESPACE/SERVICEACCOUNT that may read the picker's pages; a token for ten minutes is asked for it."

    def wish(self, *, probes: int) -> Wish:
        """Return what is to be done."""
        focus = Focus(namespace=self.namespace, gateway=self.gateway, route=self.route)
        return Wish(focus=focus, envoy=self.envoy, url=self.url, model=self.model, reader=self.reader, probes=probes)


def doctor(
    *,
    local: Switch = False,
    where: Where | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    fix: Switch = False,
    bundle: Path | None = None,
    probes: int = 4,
) -> int:
    """Find out why requests fail or picks are ignored: exit 0 all well, 1 something failed, 3 warnings alone.

    Parameters
    ----------
    local
        Look at the stack that `pointsman up` runs on this machine, and not at a cluster.
    where
        Which cluster.
    as_json
        Print the findings as JSON.
    fix
        Make the changes that are safe: they open no access, delete and restart nothing. The others are printed.
    bundle
        Write what was seen into this file (tar.gz), without secrets, for somebody else to look at.
    probes
        How many requests to send through the gateway; 0 sends none.

    """
    if not 0 <= probes <= 100:
        raise UserError(f"--probes {probes} is no number of requests: write one from 0 to 100")
    if local:
        if where is not None or fix or bundle is not None:
            raise UserError("--local looks at this machine: leave out --fix, --bundle and what names a cluster")
        findings = checks.examine(asyncio.run(doctor_local.gather(Folder(default_folder(os.environ)))))
    else:
        findings = asyncio.run(_cluster(where or Where(), probes=probes, fix=fix, bundle=bundle))
    sys.stdout.write(_shown(findings, as_json=as_json))
    return report.exit_code(findings)


def _shown(findings: list[Finding], *, as_json: bool) -> str:
    if as_json:
        return json.dumps(report.document(findings), indent=2) + "\n"
    return "\n".join(report.lines(findings)) + "\n"


async def _cluster(where: Where, *, probes: int, fix: bool, bundle: Path | None) -> list[Finding]:
    async with connect(where.kubeconfig) as client, Reach(kubectl(where.kubeconfig)) as reach:
        seen, findings = await _look(client, reach, where, probes=probes)
        made: list[Repair] = []
        for _ in range(_MOST_ROUNDS if fix else 0):
            if not await _fixed(client, findings, made) and not made:
                break
            await asyncio.sleep(_SETTLE_SECONDS)
            seen, findings = await _look(client, reach, where, probes=probes)
            if not report.exit_code(findings):
                break
    if bundle is not None:
        _write_bundle(bundle, seen, findings)
    return findings


async def _look(client: Client, reach: Reach, where: Where, *, probes: int) -> tuple[Gathered, list[Finding]]:
    wish = where.wish(probes=probes)
    seen = await gather(client, reach, wish, now=lambda: datetime.now(UTC), nonce=secrets.token_hex(4))
    several = leads_to_models(seen.cluster.objects, wish.focus)
    if len(several) > 1:
        names = ", ".join(str(key_of(one)) for one in several)
        raise UserError(f"several Gateways could be meant ({names}): say which with -n NAMESPACE --gateway NAME")
    return seen, examine(seen.cluster)


async def _fixed(client: Client, findings: list[Finding], made: list[Repair]) -> bool:
    """Make the first safe change that was not made yet; later ones may not be needed then."""
    for finding in findings:
        repair = finding.repair
        if finding.verdict in {"failed", "warning"} and repair is not None and repair.safe and repair not in made:
            refusal = await apply(client, repair)
            sys.stderr.write(
                f"{f'could not fix ({refusal})' if refusal else 'fixed'}: {finding.check}: {finding.fix}\n"
            )
            made.append(repair)
            return not refusal
    return False


def _write_bundle(path: Path, seen: Gathered, findings: list[Finding]) -> None:
    """Write everything that was seen, each kind of object in a file of its own."""
    documents: dict[str, Any] = {
        f"objects/{kind}.json": list(items) for kind, items in seen.cluster.objects.found.items()
    }
    documents |= {f"envoy/{name}": page for name, page in seen.pages.items()}
    documents["report.json"] = report.document(findings)
    files = {name: json.dumps(redact(one), indent=1, default=str) for name, one in documents.items()}
    files["report.txt"] = redact_text("\n".join(report.lines(findings)) + "\n")
    try:
        with tarfile.open(path, "w:gz") as archive:
            for name, text in files.items():
                entry = tarfile.TarInfo(f"pointsman-doctor/{name}")
                entry.size = len(data := text.encode())
                entry.mtime = int(seen.cluster.now.timestamp())
                archive.addfile(entry, io.BytesIO(data))
    except OSError as error:
        raise UserError(f"--bundle {path}: cannot be written: {error.strerror}") from None
