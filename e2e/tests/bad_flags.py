"""Command lines, and kubeconfigs, that somebody may well write, each wrong in one way, and what is said about it."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

USAGE, ERROR = 64, 1

# In these, {ok} is a good file of a cluster, {hpas} one of HPAs, {answers} one of answers, {here} an empty folder.
BOTH: dict[str, tuple[str, int, str]] = {
    "no command": ("", USAGE, "usage"),
    "an unknown command": ("plam", USAGE, "invalid choice"),
    "an unknown flag": ("plan -f {ok} --frce", USAGE, "unrecognized arguments: --frce"),
    "a flag cut short": ("plan --file {ok}", USAGE, "unrecognized arguments"),
    "a flag without its value": ("plan -f", USAGE, "expected one argument"),
    "no such file": ("plan -f {here}/none.json", ERROR, "none.json: No such file or directory"),
    "a folder": ("plan -f {here}", ERROR, "Is a directory"),
    "one of two files missing": ("plan -f {here}/none -f {ok}", ERROR, "none: No such file or directory"),
    "the other of two files missing": ("plan -f {ok} -f {here}/none", ERROR, "none: No such file or directory"),
    "a file twice": ("plan -f {ok} -f {ok}", USAGE, "is given twice"),
    "a file and a context": ("plan -f {ok} --context c", USAGE, "give only one"),
    "a file and a kubeconfig": ("plan -f {ok} --kubeconfig k", USAGE, "give only one"),
    "a file and a timeout": ("plan -f {ok} --request-timeout 5s", USAGE, "give only one"),
    "a timeout of 0": ("plan --request-timeout 0", USAGE, "is no time to wait; allowed is"),
    "a timeout below 0": ("plan --request-timeout -5s", USAGE, "is not a duration; allowed is"),
    "a timeout of a year": ("plan --request-timeout 365d", USAGE, "is no time to wait; allowed is"),
    "a timeout in words": ("plan --request-timeout soon", USAGE, "is not a duration; allowed is"),
    "an unknown output": ("plan -f {ok} -o pdf", USAGE, "invalid choice: 'pdf'"),
    "an unknown order": ("plan -f {ok} --sort-by luck", USAGE, "invalid choice: 'luck'"),
    "yesterday": ("plan -f {ok} --now yesterday", USAGE, "is not a time; allowed is RFC 3339"),
    "a time without a zone": ("plan -f {ok} --now 2026-01-01T00:00:00", USAGE, "is not a time; allowed is"),
    "the 30th of February": ("plan -f {ok} --now 2026-02-30T00:00:00Z", USAGE, "is not a time; allowed is"),
    "a configuration that is missing": ("plan -f {ok} --config {here}/none", ERROR, "No such file or directory"),
    "a configuration that is a folder": ("plan -f {ok} --config {here}", ERROR, "Is a directory"),
    "an unknown level": ("plan -f {ok} --log-level loud", USAGE, "invalid choice: 'loud'"),
    "explain nothing": ("explain -f {ok}", USAGE, "required"),
    "explain an unknown name": ("explain -f {ok} moon", ERROR, '"moon" not found'),
    "a selector with three parts": ("plan -f {ok} -l a=b=c", USAGE, "is not a requirement"),
    "a selector left open": ("plan -f {ok} -l 'a in (b'", USAGE, "is not a requirement"),
    "run on port 99999": ("run --port 99999", USAGE, "allowed are port numbers up to 65535"),
    "run on port http": ("run --port http", USAGE, "'http' is not a whole number"),
    "run every 0 s": ("run --interval 0", USAGE, "--interval"),
    "run every soon": ("run --interval soon", USAGE, "is not a duration"),
    "run with an unknown format": ("run --log-format poem", USAGE, "--log-format"),
    "run in a bad namespace": ("run --namespace A_B", USAGE, "is not the name of a Kubernetes object"),
    "no such kubeconfig": ("plan --kubeconfig {here}/none", ERROR, "none: No such file or directory"),
    "a kubeconfig that is a folder": ("plan --kubeconfig {here}", ERROR, "Is a directory"),
}
NODES: dict[str, tuple[str, int, str]] = {
    "an unknown pool": ("plan -f {ok} --pool moon", ERROR, 'no node is in pool "moon"; the pools are'),
    "an unknown rule": ("plan -f {ok} --disable-rule Luck", USAGE, "Luck can't be switched off; allowed are"),
    "a flag of plan at explain": ("explain -f {ok} --exit-code node-1", USAGE, "explain: unrecognized arguments"),
    "prices that are missing": ("plan -f {ok} --prices {here}/none", ERROR, "none: No such file or directory"),
    "prices that are not": ("plan -f {ok} --prices {ok}", ERROR, "kind 'List': allowed is ConfigMap"),
    "prices of a server that is away": ("plan -f {ok} --prices http://127.0.0.1:9", ERROR, "can't be asked"),
    "prices of a server with a password": (
        "plan -f {ok} --prices http://me:secret@127.0.0.1:9",
        ERROR,
        "contains a user name",
    ),
    "time for advice in words": ("plan -f {ok} --advice-time soon", USAGE, "is not a duration"),
    "an unknown placement": ("plan -f {ok} --placement x", USAGE, "--placement"),
    "no nodes at most": ("plan -f {ok} --max-nodes 0", USAGE, "--max-nodes"),
    "fewer nodes than none": ("plan -f {ok} --min-nodes -1", USAGE, "--min-nodes"),
    "nodes in words": ("plan -f {ok} --min-nodes few", USAGE, "--min-nodes"),
}
COMPACTOR: dict[str, tuple[str, int, str]] = {
    "half a node": ("plan -f {ok} --required-count 1.5", USAGE, "'1.5': is not a whole number"),
    "a plan to compare": ("diff {ok} {ok}", ERROR, "allowed is what `plan -o json` writes"),
    "one plan to compare": ("diff {ok}", USAGE, "required: AFTER"),
    "two plans from standard input": ("diff - -", ERROR, "both standard input"),
    "a limit of 75": ("plan -f {ok} --limit 75", USAGE, "did you mean 75%?"),
    "a limit of 101%": ("plan -f {ok} --limit 101%", USAGE, "is not a ratio; allowed is a number from 0 to 1"),
    "a limit of nan": ("plan -f {ok} --limit nan", USAGE, "--limit: 'nan': is not a ratio"),
    "a limit of inf": ("plan -f {ok} --limit inf", USAGE, "is not a ratio"),
    "a limit below 0": ("plan -f {ok} --limit -1", USAGE, "is not a ratio"),
    "a limit with a comma": ("plan -f {ok} --limit 0,75", USAGE, "is not a ratio"),
    "a limit in words": ("plan -f {ok} --limit much", USAGE, "--limit: 'much': is not a ratio"),
    "a limit of %": ("plan -f {ok} --limit %", USAGE, "is not a ratio"),
    "a budget of 101%": ("plan -f {ok} --budget 101%", USAGE, "is not a budget; allowed is"),
    "a budget of nan%": ("plan -f {ok} --budget nan%", USAGE, "is not a budget"),
    "a budget below 0": ("plan -f {ok} --budget -1", USAGE, "is not a budget"),
    "an age below 0": ("plan -f {ok} --min-age -1s", USAGE, "--min-age"),
    "an age of nan": ("plan -f {ok} --min-age nan", USAGE, "is not a duration"),
    "an unknown strategy": ("plan -f {ok} --strategy luck", USAGE, "--strategy"),
    "a search without end": ("plan -f {ok} --search inf", USAGE, "--search: 'inf' is not a duration"),
    "a search for a likely plan": ("plan -f {ok} --search 1s --placement likely", USAGE, "--placement possible only"),
}
REFINER: dict[str, tuple[str, int, str]] = {
    "a weight in words": ("plan -f {ok} --cpu-weight heavy", USAGE, "--cpu-weight"),
    "a flag of the compactor": ("plan -f {ok} --limit 0.5", USAGE, "unrecognized arguments: --limit"),
}
SCALER: dict[str, tuple[str, int, str]] = {
    "an unknown namespace": ("plan -f {hpas} -n moon", ERROR, 'there is no namespace "moon" in'),
    "an empty namespace": ("plan -f {hpas} -n ''", ERROR, 'there is no namespace ""'),
    "one of two namespaces unknown": ("plan -f {hpas} -n shop -n moon", ERROR, 'there is no namespace "moon"'),
    "all namespaces and one": ("plan -f {hpas} -A -n shop", USAGE, "not allowed with"),
    "a lower bound below 0": ("plan -f {hpas} --lower-bound -1", USAGE, "allowed is a whole number from 0"),
    "a lower bound in words": ("plan -f {hpas} --lower-bound three", USAGE, "--lower-bound: 'three'"),
    "a lower bound beyond 32 bits": ("plan -f {hpas} --lower-bound 99999999999", USAGE, "--lower-bound"),
    "answers and a server": (
        "plan -f {hpas} --outcomes {answers} --prometheus-server-url http://p:9090",
        USAGE,
        "give only one",
    ),
    "a server without a scheme": ("plan -f {hpas} --prometheus-server-url p:9090", USAGE, "--prometheus-server-url"),
    "no such answers": ("plan -f {hpas} --outcomes {here}/none", ERROR, "none: No such file or directory"),
    "answers that are a folder": ("plan -f {hpas} --outcomes {here}", ERROR, "Is a directory"),
    "answers that are a cluster": ("plan -f {hpas} --outcomes {ok}", ERROR, "not a file of query outcomes"),
    "nowhere to log": ("plan -f {hpas} --outcomes {answers} --decision-log {here}/none/x", ERROR, "--decision-log"),
    "replay nothing": ("replay", USAGE, "required: LOG"),
    "replay a missing log": ("replay {here}/none", ERROR, "No such file or directory"),
    "replay what is no log": ("replay {ok}", ERROR, "ok.json: "),
    "a backtest at prices that are missing": (
        "backtest -f {hpas} --replica-price m6i.xlarge/6 --prices {here}/none",
        ERROR,
        "none: No such file or directory",
    ),
    "a backtest at prices that are not": (
        "backtest -f {hpas} --replica-price m6i.xlarge/6 --prices {ok}",
        ERROR,
        "kind 'List': allowed is ConfigMap",
    ),
    "a suggestion from no step": ("suggest -f {hpas} --step 0", USAGE, "--step: '0': allowed is a duration"),
    "a suggestion for nobody": ("suggest -f {hpas} moon --past {answers}", ERROR, '"moon" not found'),
    "a set in words": ("backtest -f {hpas} --set dearer", USAGE, "--set 'dearer': allowed is"),
    "release nothing": ("release", USAGE, "nothing is named"),
}


def kubeconfig(cluster: Json | None = None, user: Json | None = None, context: Json | None = None, **top: Any) -> Json:
    """Return a kubeconfig for a port where nobody listens, changed."""
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", **(context or {})}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        **top,
    }


def plugin(**given: Any) -> Json:
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", **given}}


OF_CLUSTER, OF_USER = "clusters[k].cluster", "users[u].user"
KUBECONFIGS: dict[str, tuple[Json | bytes, str]] = {
    "an empty kubeconfig": (b"", "holds no configuration"),
    "a kubeconfig that is a list": (b"- a\n", "holds no configuration"),
    "a kubeconfig that is no YAML": (b"a: [", "not YAML"),
    "a kubeconfig of bytes": (b"\xff\xfe\x00", "not YAML"),
    "a deep kubeconfig": (b"[" * 2000, "nested too deeply"),
    "no current context": (kubeconfig(**{"current-context": ""}), "no current-context is set"),
    "an unknown current context": (kubeconfig(**{"current-context": "x"}), "there is no context 'x'"),
    "contexts that are a number": (kubeconfig(contexts=5), "there is no context 'c'"),
    "a context without a cluster": (kubeconfig(context={"cluster": "x"}), "names no cluster with a server"),
    "a context without its user": (kubeconfig(context={"user": "x"}), "names the user 'x', which is not there"),
    "a server of FTP": (kubeconfig({"server": "ftp://x"}), "is not an http or https address"),
    "a server without a host": (kubeconfig({"server": "https://"}), "is not an http or https address"),
    "a server on port 99999": (kubeconfig({"server": "http://h:99999"}), "is not an http or https address"),
    "a server that is a number": (kubeconfig({"server": 5}), f"{OF_CLUSTER}.server: 5 is not text"),
    "a missing authority": (
        kubeconfig({"certificate-authority": "/none.crt"}),
        f"{OF_CLUSTER}.certificate-authority: /none.crt: No such file or directory",
    ),
    "an authority that is no base64": (
        kubeconfig({"certificate-authority-data": "!!"}),
        f"{OF_CLUSTER}.certificate-authority-data: not base64",
    ),
    "an authority that is no certificate": (
        kubeconfig({"certificate-authority-data": "aGVsbG8="}),
        "certificates (of certificate-authority",
    ),
    "a missing client certificate": (
        kubeconfig(user={"client-certificate": "/none.crt", "client-key": "/none.key"}),
        f"{OF_USER}.client-certificate: /none.crt: No such file or directory",
    ),
    "a client certificate that is none": (
        kubeconfig(user={"client-certificate-data": "aGVsbG8=", "client-key-data": "aGVsbG8="}),
        "certificates (of certificate-authority",
    ),
    "a missing token file": (kubeconfig(user={"tokenFile": "/none"}), f"{OF_USER}.tokenFile: /none: No such file"),
    "a token that is a number": (kubeconfig(user={"token": 5}), f"{OF_USER}.token: 5 is not text"),
    "a plugin without a command": (kubeconfig(user={"exec": {}}), f"{OF_USER}.exec.command: names no command"),
    "a missing plugin": (
        kubeconfig(user=plugin(command="none-such", installHint="Install it.")),
        f"{OF_USER}.exec.command: none-such: there is no such program; Install it.",
    ),
    "a plugin that fails": (
        kubeconfig(user=plugin(command="false")),
        f"{OF_USER}.exec: the exec plugin false failed with exit code 1",
    ),
    "a plugin that says nothing": (
        kubeconfig(user=plugin(command="true")),
        f"{OF_USER}.exec: the exec plugin true printed no JSON",
    ),
    "TLS checks that are maybe": (
        kubeconfig({"insecure-skip-tls-verify": "maybe"}),
        f"{OF_CLUSTER}.insecure-skip-tls-verify: 'maybe': allowed are true and false",
    ),
    "nobody there": (kubeconfig(), "cannot connect: Connection refused"),
    "no proxy there": (kubeconfig({"proxy-url": "http://127.0.0.1:1"}), "cannot connect to the proxy"),
}
