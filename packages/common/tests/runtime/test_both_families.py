"""A controller in clusters of IPv6, of IPv4 and of both: each in a network namespace of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SIX, FOUR = "fd00:10::1", "10.10.0.1"

# In the namespace: a cluster that listens on the first address, a controller in a pod, and a kubelet that asks it.
SCENE = """
    import asyncio, json, os, signal, sys
    from pathlib import Path
    import aiohttp
    from tightship_simulator import serve
    from tightship_simulator.serve import EmbeddedCluster

    folder, *addresses = sys.argv[1:]
    hosts = [f"[{each}]" if ":" in each else each for each in addresses]
    serve.HOST = addresses[0]

    async def main():
        async with EmbeddedCluster() as cluster, aiohttp.ClientSession() as session:
            port = cluster._runner.addresses[0][1]
            document = {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "c"}}],
                "clusters": [{"name": "c", "cluster": {"server": f"http://{hosts[0]}:{port}"}}],
            }
            kubeconfig = Path(folder, "kubeconfig")
            kubeconfig.write_text(json.dumps(document))
            pod = {"KUBERNETES_SERVICE_HOST": addresses[0], "KUBERNETES_SERVICE_PORT": str(port), "POD_NAME": "pod-0"}
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "node_compactor", "run", "--kubeconfig", str(kubeconfig), "--log-format", "json",
                env={**os.environ, **pod}, stderr=asyncio.subprocess.PIPE,
            )
            log = asyncio.create_task(process.stderr.read())
            answers = {}
            for host in hosts:
                for place in (f"{host}:5000/readyz", f"{host}:9101/metrics"):
                    while answers.get(place) != 200 and process.returncode is None:
                        try:
                            async with session.get(f"http://{place}") as answer:
                                answers[place] = answer.status
                        except aiohttp.ClientError as error:
                            answers[place] = str(error)
                        await asyncio.sleep(0.05)
            leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/node-compactor"
            holder = ""
            while not holder and process.returncode is None:
                async with session.get(f"http://{hosts[0]}:{port}{leases}") as answer:
                    holder = (await answer.json()).get("spec", {}).get("holderIdentity", "")
                await asyncio.sleep(0.05)
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            code = await process.wait()
            lines = [json.loads(line) for line in (await log).splitlines()]
            told = {"answers": answers, "holder": holder.rpartition("_")[0], "code": code}
            told["errors"] = [each for each in lines if each["level"].lower() not in ("info", "debug")]
            told["identity"] = next((each["message"] for each in lines if "context x" in each["message"]), "")
            print(json.dumps(told))

    asyncio.run(main())
"""

ONLY_SIX = f"ip addr del 127.0.0.1/8 dev lo; ip addr add {SIX}/64 dev lo nodad"
ONLY_FOUR = f"ip addr add {FOUR}/24 dev lo; echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"
BOTH = f"ip addr add {SIX}/64 dev lo nodad; ip addr add {FOUR}/24 dev lo"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "addresses"),
    [
        pytest.param(ONLY_SIX, [SIX], id="IPv6 only"),
        pytest.param(ONLY_FOUR, [FOUR], id="IPv4 only"),
        pytest.param(BOTH, [SIX, FOUR], id="both, the API server on IPv6"),
        pytest.param(BOTH, [FOUR, SIX], id="both, the API server on IPv4"),
    ],
)
def test_a_controller_reaches_its_cluster_and_is_reached_by_each_family(
    network: str, addresses: list[str], tmp_path: Path
) -> None:
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rn", "true"], check=False).returncode:
        pytest.skip("the kernel gives no network namespace to this user")
    if not shutil.which("ip"):
        pytest.skip("the program ip is missing, which sets up a network")
    scene = tmp_path / "scene.py"
    scene.write_text(textwrap.dedent(SCENE))
    set_up = f'set -e; ip link set lo up; {network}; exec "$@"'
    command = ["unshare", "-rn", "sh", "-c", set_up, "sh", sys.executable, str(scene), str(tmp_path), *addresses]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    reported = json.loads(done.stdout)
    hosts = [f"[{each}]" if ":" in each else each for each in addresses]
    assert reported["answers"] == {
        f"{host}{place}": 200 for host in hosts for place in (":5000/readyz", ":9101/metrics")
    }
    assert (reported["holder"], reported["code"], reported["errors"]) == ("pod-0", 0, [])
    assert f"at http://{hosts[0]}:" in reported["identity"]
