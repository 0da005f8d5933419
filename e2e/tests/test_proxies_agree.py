"""Which proxy a request goes through is what Go's own package says, for thousands of odd settings."""

from __future__ import annotations

import json
import random
import subprocess

import pytest

from tightship.kube.connector import decide
from tightship_e2e import binaries
from tightship_e2e.plugin import require_programs

pytestmark = pytest.mark.controlplane

HOSTS = (
    "example.com", "foo.example.com", "EXAMPLE.com", "example.com.", "a_b.example.com", "localhost", "LOCALHOST",
    "foo.localhost", "kubernetes", "kubernetes.default.svc", "127.0.0.1", "127.1.2.3", "10.0.0.1", "10.255.3.4",
    "192.168.1.1", "010.0.0.1", "1.2.3", "[::1]", "[::2]", "[fd00::1]", "[fe80::1%25eth0]", "[::ffff:10.0.0.1]",
    "[::ffff:127.0.0.1]", "[2001:db8::52:0:1]", "www.示例.com", "xn--fsq092h.com", "www.xn--fsq092h.com", "bücher.de",
    "Bücher.de", "xn--bcher-kva.de", "faß.de",
)  # fmt: skip
PORTS = ("", "", "", ":80", ":443", ":6443", ":")
ODD = (
    "*", "", ".", "*.", "..", "*.*", ":80", ":", "[::1]", "[fd00::1]", "[fd00::1]:6443", "10.0.0.0/8", "10.0.0.0/08",
    "10.0.0.3/30", "10.0.0.0/33", "10.0.0.0/8:443", "10.0.0.0/ 8", "10.0.0.1/+8", "10.0.0.1/", "/8", "fd00::/8",
    "::ffff:10.0.0.0/104", "::ffff:10.0.0.0/90", "::/0", "0.0.0.0/0", "a[b]:80", "[a]b:80", "[[::1]]:80", "[::1",
    "::1]", "**.example.com", "*example.com", "*:80", ".svc", "fe80::1%eth0", "[fe80::1%eth0]:443", "::1%", "1.2.3.4%x",
)  # fmt: skip
PROXIES = (
    "", "proxy", "proxy:3128", "http://proxy:3128", "https://u:p@proxy", "HTTP://proxy", "socks5://127.0.0.1",
    "foo://host", "127.0.0.1:8080", "localhost", "cache.corp.example.com:1234", "[::1]:3128",
)  # fmt: skip


def entry(rng: random.Random) -> str:
    """Return an entry of NO_PROXY that may name one of the hosts, or nearly does, or is none."""
    host = rng.choice(HOSTS).strip("[]").replace("%25", "%")
    parent = host.partition(".")[2] or host
    letters = list(host)
    letters[rng.randrange(len(letters))] = rng.choice(".:[]*/% a1")
    return rng.choice(
        (
            rng.choice(ODD),
            host + rng.choice(PORTS),
            f"[{host}]{rng.choice(PORTS)}",
            f"{host}/{rng.choice((0, 1, 8, 16, 24, 32, 33, 64, 96, 104, 128, 129))}",
            host.upper(),
            f" {host}\t",
            parent,
            f".{parent}",
            f"*.{parent}",
            "".join(letters),
        )
    )


def test_proxies_are_chosen_as_go_chooses_them() -> None:
    require_programs("httpproxy")
    rng = random.Random(34)
    rows = []
    for _ in range(20_000):
        excepted = ",".join(entry(rng) for _ in range(rng.choice((0, 1, 1, 2, 3))))
        url = f"{rng.choice(('http', 'https', 'https', 'ftp'))}://{rng.choice(HOSTS)}{rng.choice(PORTS)}/api"
        rows.append((rng.choice(PROXIES), rng.choice(PROXIES), excepted, url))
    lines = "".join(json.dumps(each) + "\n" for each in rows)
    program = str(binaries.find("httpproxy")["httpproxy"])
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    reported = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(set(reported)) > 5
    different = [
        (row, theirs, ours)
        for row, theirs in zip(rows, reported, strict=True)
        if (ours := decide(row[3], dict(zip(("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"), row, strict=False))) or "")
        != theirs
    ]
    assert different == []
