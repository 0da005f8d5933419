"""Which addresses may be asked."""

from __future__ import annotations

import pytest

from tightship.objects.query_servers import Address, AddressError, AllowList, is_guarded, parse_address, parse_server


@pytest.mark.parametrize(
    ("text", "address", "written"),
    [
        ("http://prometheus", Address("http", "prometheus", 80), "http://prometheus"),
        ("HTTPS://Prometheus.Example.COM./", Address("https", "prometheus.example.com", 443), None),
        ("https://p:9090//a//b/", Address("https", "p", 9090, "/a/b"), "https://p:9090/a/b"),
        ("http://[FD00::1]:80/x", Address("http", "fd00::1", 80, "/x"), "http://[fd00::1]/x"),
        ("http://10.0.0.1:443", Address("http", "10.0.0.1", 443), "http://10.0.0.1:443"),
    ],
)
def test_an_address_has_one_way_to_be_written(text: str, address: Address, written: str | None) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address
    assert written is None or str(address) == written


@pytest.mark.parametrize(
    "text",
    [
        "",
        "prometheus:9090",
        "//prometheus",
        "ftp://prometheus",
        "http://",
        "http://:9090",
        "http://p:x",
        "http://p:99999",
        "http://[::1",
        "http://user@p",
        "http://user:secret@p",
        "http://p?query=up",
        "http://p#x",
        "http://p/../x",
        "http://p/%2e%2e/x",
        "http://p q",
        "http://p\\@q",
        "http://p\n",
        "http://\u0440",
    ],
)
def test_what_is_no_address_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(AddressError, match=r"allowed is an address such as https://"):
        parse_address(text)


AMAZON = "https://aps-workspaces.eu-west-1.amazonaws.com/workspaces/ws-1"
PROXIED = "https://k8s/api/v1/namespaces/monitoring/services/prometheus:9090/proxy"


@pytest.mark.parametrize("server", [AMAZON, PROXIED])
@pytest.mark.parametrize("end", ["/api/v1", "/api/v1/", "/api/v1/query", "/api/v1/query_range"])
def test_the_address_of_queries_is_no_server(server: str, end: str) -> None:
    assert str(parse_server(server)) == server
    with pytest.raises(AddressError, match="is no server but a part of its API; leave out /api/v1 and what follows"):
        parse_server(server + end)


LISTED = AllowList.of(
    [
        "https://prometheus.example.com",
        "http://*.monitoring.svc:9090",
        "http://shared:9090/team-a",
        "http://169.254.7.7",
    ]
)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("https://prometheus.example.com", True),
        ("https://prometheus.example.com/any/path", True),
        ("http://prometheus.example.com", False),
        ("https://prometheus.example.com:8443", False),
        ("https://evil.example.com", False),
        ("https://prometheus.example.com.evil.net", False),
        ("http://a.monitoring.svc:9090", True),
        ("http://a.b.monitoring.svc:9090", True),
        ("http://monitoring.svc:9090", False),
        ("http://xmonitoring.svc:9090", False),
        ("http://shared:9090/team-a", True),
        ("http://shared:9090/team-a/deeper", True),
        ("http://shared:9090/team-ab", False),
        ("http://shared:9090", False),
    ],
)
def test_only_what_is_listed_may_be_asked(text: str, allowed: bool) -> None:
    assert LISTED.allows(parse_address(text)) is allowed


def test_an_empty_list_allows_nothing() -> None:
    assert not AllowList().allows(parse_address("http://p"))


@pytest.mark.parametrize("text", ["http://*", "http://*.svc", "http://a.*.svc:9090", "http://pro*.example.com", "x"])
def test_a_list_is_not_wider_than_a_name_with_two_labels(text: str) -> None:
    with pytest.raises(AddressError):
        AllowList.of([text])


def test_a_host_that_is_listed_itself_is_told_from_one_below_a_name() -> None:
    assert LISTED.names("169.254.7.7")
    assert not LISTED.names("a.monitoring.svc")


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.0.1",
        "fe80::1",
        "fe80::1%eth0",
        "::ffff:169.254.169.254",
        "2002:a9fe:a9fe::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "0.0.0.0",
        "224.0.0.1",
    ],
)
def test_link_local_and_metadata_addresses_are_guarded(host: str) -> None:
    assert is_guarded(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "127.0.0.1", "prometheus", "100.100.100.201", "fd00::1", "metadata"])
def test_others_are_not(host: str) -> None:
    assert not is_guarded(host)
