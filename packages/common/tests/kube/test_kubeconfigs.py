"""Kubeconfigs as clouds, distributions and people write them, read as client-go reads them: one row for each oddity."""

from __future__ import annotations

import base64
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tightship.kube.credentials import ClusterAccess, contexts, find
from tightship.objects.api_errors import ConfigError
from tightship_testkit.credentials import Authority

PLAIN = """\
apiVersion: v1
kind: Config
current-context: a
contexts:
- name: a
  context: {cluster: a, user: a}
clusters:
- name: a
  cluster: {server: "https://a:6443"}
users:
- name: a
  user: {token: t}
"""


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


async def access(path: Path, text: str | bytes) -> ClusterAccess:
    return await find(written(path, text)).access()


def with_user(**user: Any) -> str:
    return PLAIN.replace("{token: t}", json.dumps(user))


def with_cluster(**cluster: Any) -> str:
    return PLAIN.replace('{server: "https://a:6443"}', json.dumps({"server": "https://a:6443", **cluster}))


BEARER = (("Authorization", "Bearer t"),)

# (what, text, headers, server)
READ: list[tuple[str, str | bytes, tuple[tuple[str, str], ...], str]] = [
    ("as kubectl config writes it", PLAIN, BEARER, "https://a:6443"),
    ("Windows' line ends", PLAIN.replace("\n", "\r\n"), BEARER, "https://a:6443"),
    ("a mark at the beginning", b"\xef\xbb\xbf" + PLAIN.encode(), BEARER, "https://a:6443"),
    ("UTF-16, as Windows PowerShell writes it", PLAIN.encode("utf-16"), BEARER, "https://a:6443"),
    ("a line before the document", "---\n" + PLAIN, BEARER, "https://a:6443"),
    ("a line after the document", PLAIN + "---\n", BEARER, "https://a:6443"),  # what a loop with cat leaves
    ("comments", "# made by terraform\n" + PLAIN + "# end\n", BEARER, "https://a:6443"),
    ("JSON", json.dumps({"current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                         "clusters": [{"name": "a", "cluster": {"server": "https://a:6443"}}],
                         "users": [{"name": "a", "user": {"token": "t"}}]}), BEARER, "https://a:6443"),
    ("without apiVersion and kind", PLAIN.split("\n", 2)[2], BEARER, "https://a:6443"),
    ("null for preferences and extensions", PLAIN + "preferences: null\nextensions: null\n", BEARER, "https://a:6443"),
    ("unknown keys", PLAIN + "x-owner: team-a\n", BEARER, "https://a:6443"),
    ("a path, as Rancher's", PLAIN.replace("a:6443", "r/k8s/clusters/c-1"), BEARER, "https://r/k8s/clusters/c-1"),
    ("a slash at the end", PLAIN.replace("a:6443", "a:6443/"), BEARER, "https://a:6443"),
    ("an address of IPv6", PLAIN.replace("//a:6443", "//[fd00::1]:6443"), BEARER, "https://[fd00::1]:6443"),
    ("no port", PLAIN.replace("a:6443", "A1B2.gr7.eu-west-1.eks.amazonaws.com"), BEARER,
     "https://A1B2.gr7.eu-west-1.eks.amazonaws.com"),
    ("EKS' name of a context", PLAIN.replace("name: a", "name: arn:aws:eks:eu-west-1:1:cluster/a").replace(
        "context: {cluster: a, user: a}", "context: {cluster: 'arn:aws:eks:eu-west-1:1:cluster/a', user: "
        "'arn:aws:eks:eu-west-1:1:cluster/a'}").replace("current-context: a",
        "current-context: arn:aws:eks:eu-west-1:1:cluster/a"), BEARER, "https://a:6443"),
    ("a token with a line end", with_user(token="t\n"), BEARER, "https://a:6443"),
    ("a token over a token of a plugin", with_user(token="t", exec={
        "apiVersion": "client.authentication.k8s.io/v1beta1", "command": "/nowhere/plugin"}), BEARER, "https://a:6443"),
    ("null beside a token", with_user(token="t", exec=None, username=None), BEARER, "https://a:6443"),
    ("a name and a password", with_user(username="me", password="x:y"),
     (("Authorization", "Basic " + base64.b64encode(b"me:x:y").decode()),), "https://a:6443"),
    ("nobody", with_user(), (), "https://a:6443"),
    ("somebody else's name", with_user(token="t", **{"as": "ci"}), (*BEARER, ("Impersonate-User", "ci")),
     "https://a:6443"),
    ("somebody else's number", with_user(token="t", **{"as": "ci", "as-uid": "7"}),
     (*BEARER, ("Impersonate-User", "ci"), ("Impersonate-Uid", "7")), "https://a:6443"),
    ("somebody else's groups", with_user(token="t", **{"as": "ci", "as-groups": ["a", "b"]}),
     (*BEARER, ("Impersonate-User", "ci"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b")), "https://a:6443"),
    # client-go, transport/round_trippers_test.go: without them an authorizer that asks for scopes refuses.
    ("somebody else's scopes", with_user(token="t", **{"as": "ci", "as-user-extra": {"scopes": ["view", "drain"]}}),
     (*BEARER, ("Impersonate-User", "ci"), ("Impersonate-Extra-scopes", "view"),
      ("Impersonate-Extra-scopes", "drain")), "https://a:6443"),
    ("a key that is no header", with_user(token="t", **{"as": "ci", "as-user-extra": {"example.com/team %": ["x"]}}),
     (*BEARER, ("Impersonate-User", "ci"), ("Impersonate-Extra-example.com%2Fteam%20%25", "x")), "https://a:6443"),
    ("no scopes", with_user(token="t", **{"as": "ci", "as-user-extra": {"scopes": []}}),
     (*BEARER, ("Impersonate-User", "ci")), "https://a:6443"),
    ("insecure", with_cluster(**{"insecure-skip-tls-verify": True}), BEARER, "https://a:6443"),
    ("compression", with_cluster(**{"disable-compression": True}), BEARER, "https://a:6443"),
    ("minikube's extensions", with_cluster(extensions=[{"name": "cluster_info", "extension": {"provider": "x"}}]),
     BEARER, "https://a:6443"),
    ("empty certificate", with_cluster(**{"certificate-authority-data": "", "certificate-authority": ""}), BEARER,
     "https://a:6443"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "headers", "server"), [row[1:] for row in READ], ids=[row[0] for row in READ])
async def test_a_kubeconfig_is_read_as_kubectl_reads_it(
    text: str | bytes, headers: tuple[tuple[str, str], ...], server: str, tmp_path: Path
) -> None:
    found = await access(tmp_path / "config", text)
    assert (found.headers, found.server) == (headers, server)


def twice(section: str, entry: str) -> str:
    return PLAIN.replace(f"{section}:\n", f"{section}:\n{entry}\n")


REFUSED: list[tuple[str, str, str]] = [
    # client-go, tools/clientcmd/client_config_test.go (TestDuplicateClusterName and its siblings): a drain would run
    # in one of the two.
    ("two clusters of one name", twice("clusters", "- {name: a, cluster: {server: 'https://b'}}"), "clusters has 'a'"),
    ("two contexts of one name", twice("contexts", "- {name: a, context: {cluster: b}}"), "contexts has 'a' twice"),
    ("two users of one name", twice("users", "- {name: a, user: {token: u}}"), "users has 'a' twice; allowed is each"),
    ("two files in one", PLAIN + "---\n" + PLAIN, "holds several documents"),
    ("a context of no name", PLAIN.replace("current-context: a", 'current-context: ""'), "no current-context"),
    ("no context", PLAIN.replace("current-context: a\n", ""), "no current-context is set; name one by --context"),
    ("a context that is gone", PLAIN.replace("current-context: a", "current-context: b"), "there is no context 'b'"),
    ("a cluster that is gone", PLAIN.replace("cluster: a,", "cluster: b,"), "names no cluster with a server"),
    ("a user that is gone", PLAIN.replace("user: a}", "user: b}"), "names the user 'b', which is not there"),
    ("a number for a token", PLAIN.replace("token: t", "token: 12345"), "token: 12345 is not text"),
    ("a number for a server", PLAIN.replace('"https://a:6443"', "6443"), "server: 6443 is not text"),
    ("an address without a scheme", PLAIN.replace("https://a:6443", "a:6443"), "is not an http or https address"),
    ("a port that is none", PLAIN.replace("a:6443", "a:port"), "is not an http or https address"),
    ("a template", PLAIN.replace("https://a:6443", "${SERVER}"), "is not an http or https address"),
    ("tabs", PLAIN.replace("  cluster:", "\tcluster:"), "not YAML"),
    ("a certificate cut off", with_cluster(**{"certificate-authority-data": "LS0tLS1CRUdJ"}), "certificates"),
    ("as config view shows it", with_cluster(**{"certificate-authority-data": "DATA+OMITTED"}), "certificates"),
    ("no base64", with_cluster(**{"certificate-authority-data": "-----BEGIN CERTIFICATE-----"}), "not base64"),
    ("a certificate that is gone", with_cluster(**{"certificate-authority": "ca.crt"}), "ca.crt: No such file"),
    ("a token file that is gone", with_user(tokenFile="token"), "token: No such file"),
    ("a proxy of no kind", with_cluster(**{"proxy-url": "proxy:3128"}), "proxy-url"),
    ("yes for a switch", with_cluster(**{"insecure-skip-tls-verify": "yes"}), "'yes': allowed are true and false"),
    ("a plugin of old", with_user(exec={"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "aws"}),
     "v1alpha1': allowed are client.authentication.k8s.io/v1 and"),
    ("a plugin without a mode", with_user(exec={"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}),
     "interactiveMode: None: allowed are Never, IfAvailable, Always"),
    ("a plugin without a command", with_user(exec={"apiVersion": "client.authentication.k8s.io/v1"}), "names no comm"),
    ("a plugin with one argument", with_user(exec={"apiVersion": "client.authentication.k8s.io/v1beta1",
     "command": "aws", "args": "eks get-token"}), "is not a list of texts"),
    ("a snapshot", "kind: List\nitems: []\n", "kind 'List': allowed is Config"),
    ("a Secret of Cluster API", "kind: Secret\ndata: {value: eA==}\n", "kind 'Secret': allowed is Config"),
    ("nothing", "", "holds no configuration"),
    ("a comment", "# nothing yet\n", "holds no configuration"),
    ("an error in its place", "error: You must be logged in\n", "no current-context"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_what_kubectl_would_not_use_is_one_line_that_names_the_place(
    text: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        await access(tmp_path / "config", text)
    assert says in str(caught.value)
    assert "config" in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_certificate_with_line_ends_of_windows_is_good(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pem = authority.ca_file.read_bytes()
    written = base64.encodebytes(pem.replace(b"\n", b"\r\n")).decode().replace("\n", "\r\n")
    found = await access(tmp_path / "config", with_cluster(**{"certificate-authority-data": written}))
    assert found.tls is not None
    assert found.tls.get_ca_certs()


# Several files, and where they are.


def parts(folder: Path) -> tuple[Path, Path]:
    """Return a file that names a context alone, and one in a folder of its own with all else, relative to itself."""
    (folder / "far").mkdir()
    (folder / "far" / "token").write_text("t\n")
    one = folder / "one"
    one.write_text("current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n")
    two = folder / "far" / "two"
    two.write_text(
        textwrap.dedent("""\
            current-context: b
            contexts: [{name: b, context: {cluster: a, user: a}}]
            clusters: [{name: a, cluster: {server: 'https://a:6443'}}]
            users: [{name: a, user: {tokenFile: token}}]
        """)
    )
    return one, two


async def test_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    one, two = parts(tmp_path)
    source = find(environ={"KUBECONFIG": f"{one}:{two}"})
    assert (source.context, (await source.access()).headers) == ("a", BEARER)


@pytest.mark.parametrize("empty", ["", "# later\n", "---\n"])
async def test_an_empty_file_among_others_is_none(empty: str, tmp_path: Path) -> None:
    one, two = parts(tmp_path)
    (tmp_path / "empty").write_text(empty)
    source = find(environ={"KUBECONFIG": f"{tmp_path / 'empty'}:{one}:{two}"})
    assert (await source.access()).headers == BEARER


async def test_a_link_is_where_it_is_and_not_where_it_points(tmp_path: Path) -> None:
    # client-go makes paths absolute by the folder of the name that it was given (filepath.Dir of LocationOfOrigin).
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "config").write_text(with_user(tokenFile="token"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "token").write_text("t")
    link = tmp_path / "home" / "config"
    link.symlink_to(tmp_path / "store" / "config")
    assert (await find(link).access()).headers == BEARER


async def test_the_first_file_with_a_name_counts_and_each_name_is_offered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(PLAIN)
    two.write_text(PLAIN.replace("https://a", "https://b").replace("- name: a\n  context", "- name: z\n  context"))
    monkeypatch.setenv("KUBECONFIG", f"{one}:{two}:{one}::")
    assert (await find().access()).server == "https://a:6443"
    assert (await find(context="z").access()).server == "https://a:6443"
    assert contexts() == ["a", "z"]


PLUGIN = """\
#!/bin/sh
printf '{"apiVersion":"%s","kind":"ExecCredential","status":{"token":"%s"}}' \\
    client.authentication.k8s.io/v1beta1 "$AWS_PROFILE-$*"
"""


@pytest.mark.parametrize(
    ("more", "token"),
    [
        ({"args": ["eks", "get-token"], "env": [{"name": "AWS_PROFILE", "value": "prod"}]}, "prod-eks get-token"),
        ({"args": ["x"], "env": [{"name": "AWS_PROFILE", "value": None}]}, "-x"),
        ({"args": ["x"], "env": [{"name": "AWS_PROFILE"}], "installHint": None, "provideClusterInfo": None}, "-x"),
        ({"args": None, "env": None}, "-"),
        ({"args": ["x"], "env": [], "interactiveMode": "Never"}, "-x"),
    ],
)
async def test_plugins_as_clouds_write_them_are_run(
    more: dict[str, Any], token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    plugin = tmp_path / "bin" / "plugin"
    plugin.parent.mkdir()
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    text = with_user(exec={"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "./bin/plugin", **more})
    found = await access(tmp_path / "config", text)
    assert found.headers == (("Authorization", f"Bearer {token}"),)
