"""`pointsman verify`: experiments whose verdict is which Pod answered, on a cluster or on the stack of this machine.

Exit 0: passed. Exit 1: failed, and the output says what that means. Exit 2: the command line is wrong, or there is
nothing to send requests to.
"""

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated

from cyclopts import Parameter

from pointsman.cli.doctor import Where
from pointsman.core.errors import UserError
from pointsman.doctor.cluster.objects import at, pod_ready
from pointsman.doctor.cluster.path import trace
from pointsman.doctor.experiments import Experiment, ProbeAnswer, judge, prompt
from pointsman.doctor.gather.cluster import target_for
from pointsman.doctor.gather.objects import list_all
from pointsman.doctor.gather.reach import Away, Reach, kubectl
from pointsman.doctor.gather.requests import Target, send
from pointsman.kube import connect
from pointsman.local import control
from pointsman.local.state import Folder, default_folder
from pointsman.render.envoy.addresses import read_address

_PREFIX = 8
_PER_POD = 8  # with requests drawn at random, three Pods and this many each, one is left out once in 5000 runs
_TOKENS = 32
_ROLE = "llm-d.ai/role"


def verify(
    experiment: Experiment,
    *,
    local: Annotated[bool, Parameter(negative=())] = False,
    where: Where | None = None,
    requests: int | None = None,
    pause: float = 0.1,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Send requests through the gateway and judge by the Pods that answered: exit 0 passed, 1 failed.

    Parameters
    ----------
    experiment
        prefix-cache: one long prompt again and again, which must stay on one Pod; round-robin: other prompts, which
        must reach all Pods.
    local
        Ask the stack that `pointsman up` runs on this machine.
    where
        Which cluster.
    requests
        How many; 8 for prefix-cache, 8 for each Pod for round-robin.
    pause
        Seconds between two.
    as_json
        Print the result as JSON.

    """
    if requests is not None and not 2 <= requests <= 10_000:
        raise UserError(f"--requests {requests} is no number of requests: write one from 2 to 10000")
    if not 0 <= pause <= 60:
        raise UserError(f"--pause {pause:g} is no time to wait: write seconds from 0 to 60")
    if local and where is not None:
        raise UserError("--local asks the stack on this machine: leave out what names a cluster")
    work = _runner(experiment, requests=requests, pause=pause, as_json=as_json)
    return asyncio.run(_locally(work) if local else _on_cluster(work, where or Where()))


Work = Callable[[Target, int], Awaitable[int]]


def _runner(experiment: Experiment, *, requests: int | None, pause: float, as_json: bool) -> Work:
    async def work(target: Target, pods: int) -> int:
        nonce = secrets.token_hex(4)
        count = requests or (_PREFIX if experiment == "prefix-cache" else _PER_POD * max(2, pods))
        answers = []
        for number in range(count):
            if number:
                await asyncio.sleep(pause)
            sent = await send(target, prompt(experiment, number=number, nonce=nonce), tokens=_TOKENS)
            answers.append(
                ProbeAnswer(
                    pod=sent.probe.answered, status=sent.probe.status, why=sent.probe.why, seconds=sent.probe.seconds
                )
            )
            if sent.probe.status != 200:  # the others would only be waited for
                break
        result = judge(experiment, answers, pods=pods)
        sys.stdout.write(json.dumps(result.to_json(), indent=2) + "\n" if as_json else result.told())
        return 0 if result.passed else 1

    return work


async def _locally(work: Work) -> int:
    found = await asyncio.to_thread(control.find, Folder(default_folder(os.environ)))
    if found is None or found.stack is None:
        raise UserError("no stack runs on this machine: start one with pointsman up --detach")
    stack = found.stack
    ready = [one for one in stack.replicas if one.state == "ready"]
    pods = len(ready) // stack.pools  # those of the model that is asked for
    return await work(Target(address=read_address(stack.gateway), model=stack.model), pods)


async def _on_cluster(work: Work, where: Where) -> int:
    wish = where.wish(probes=0)
    async with connect(where.kubeconfig) as client, Reach(kubectl(where.kubeconfig)) as reach:
        path = trace(await list_all(client, namespace=where.namespace), wish.focus)
        try:
            target = await target_for(path, reach, wish)
        except Away as error:
            raise UserError(
                f"the gateway cannot be reached from here: {error}; say --url http://ADDRESS:PORT"
            ) from None
        if target is None:
            raise UserError(
                "no Gateway with a route and a ready Pod: pointsman doctor says why, --url names another way"
            )
        serving = [p for p in path.servers if pod_ready(p) and at(p, "metadata", "labels", _ROLE) != "prefill"]
        return await work(target, len(serving))
