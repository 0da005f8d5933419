"""Which proxy a request goes through: the cases of Go's golang.org/x/net/http/httpproxy, proxy_test.go, and more."""

from __future__ import annotations

import pytest

from tightship.kube.connector import ProxyError, decide, proxy_for

DIRECT = None

# The value of HTTP_PROXY, and the proxy of http://example.com.
VALUES = [
    ("127.0.0.1:8080", "http://127.0.0.1:8080"),
    ("cache.corp.example.com:1234", "http://cache.corp.example.com:1234"),
    ("cache.corp.example.com", "http://cache.corp.example.com"),
    ("localhost", "http://localhost"),
    ("https://cache.corp.example.com", "https://cache.corp.example.com"),
    ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ("https://127.0.0.1:8080", "https://127.0.0.1:8080"),
    ("socks5://127.0.0.1", "socks5://127.0.0.1"),
    ("foo://host", "foo://host"),
    ("", DIRECT),
    # Ours.
    ("user:pass@proxy:3128", "http://user:pass@proxy:3128"),
    ("[fd00::1]:3128", "http://[fd00::1]:3128"),
]


@pytest.mark.parametrize(("value", "proxy"), VALUES)
def test_a_value_without_a_scheme_is_an_http_proxy(value: str, proxy: str | None) -> None:
    assert decide("http://example.com", {"HTTP_PROXY": value}) == proxy


# HTTP_PROXY, HTTPS_PROXY, NO_PROXY, the URL, its proxy.
REQUESTS = [
    ("http.proxy.tld", "secure.proxy.tld", "", "http://insecure.tld/", "http://http.proxy.tld"),
    ("http.proxy.tld", "secure.proxy.tld", "", "https://secure.tld/", "http://secure.proxy.tld"),
    ("http.proxy.tld", "https://secure.proxy.tld", "", "https://secure.tld/", "https://secure.proxy.tld"),
    ("http.proxy.tld", "", "", "https://secure.tld/", DIRECT),
    ("http.proxy.tld", "", "", "ftp://insecure.tld/", DIRECT),
    ("proxy", "", "example.com", "http://example.com/", DIRECT),
    ("proxy", "", ".example.com", "http://example.com/", "http://proxy"),
    ("proxy", "", "ample.com", "http://example.com/", "http://proxy"),
    ("proxy", "", "example.com", "http://foo.example.com/", DIRECT),
    ("proxy", "", ".foo.com", "http://example.com/", "http://proxy"),
    ("proxy", "", ".示例.com", "http://www.示例.com", DIRECT),
    ("proxy", "", "xn--fsq092h.com", "http://www.示例.com", DIRECT),
    ("proxy", "", "示例.com", "http://www.xn--fsq092h.com", DIRECT),
    ("proxy", "", "example.com", "http://[1000::%25.example.com]:123", "http://proxy"),
]


@pytest.mark.parametrize(("http", "https", "no_proxy", "url", "proxy"), REQUESTS)
def test_the_scheme_and_the_exceptions_decide(
    http: str, https: str, no_proxy: str, url: str, proxy: str | None
) -> None:
    assert decide(url, {"HTTP_PROXY": http, "HTTPS_PROXY": https, "NO_PROXY": no_proxy}) == proxy


NO_PROXY = (
    "foobar.com, .barbaz.net, *.wildcard.io, 192.168.1.1, 192.168.1.2:81, 192.168.1.3:80, 10.0.0.0/30, "
    "2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, 2002:db8:a::45/64"
)
# The host on port 80, and whether requests go through the proxy.
HOSTS = [
    ("localhost", False),
    ("127.0.0.1", False),
    ("127.0.0.2", False),
    ("[::1]", False),
    ("[::2]", True),
    ("192.168.1.1", False),
    ("192.168.1.2", True),
    ("192.168.1.3", False),
    ("192.168.1.4", True),
    ("10.0.0.2", False),
    ("[2001:db8::52:0:1]", False),
    ("[2001:db8::52:0:2]", True),
    ("[2001:db8::52:0:3]", False),
    ("[2002:db8:a::123]", False),
    ("[fe80::424b:c8be:1643:a1b6]", True),
    ("barbaz.net", True),
    ("www.barbaz.net", False),
    ("foobar.com", False),
    ("www.foobar.com", False),
    ("foofoobar.com", True),
    ("baz.com", True),
    ("localhost.net", True),
    ("local.localhost", True),
    ("barbarbaz.net", True),
    ("wildcard.io", True),
    ("nested.wildcard.io", False),
    ("awildcard.io", True),
]


@pytest.mark.parametrize(("host", "through"), HOSTS)
def test_no_proxy_has_names_addresses_networks_and_ports(host: str, through: bool) -> None:
    found = decide(f"http://{host}:80/", {"HTTP_PROXY": "proxy", "NO_PROXY": NO_PROXY})
    assert found == ("http://proxy" if through else DIRECT)
    assert decide(f"http://{host}:80/", {"HTTP_PROXY": "proxy", "NO_PROXY": "*"}) is DIRECT


# NO_PROXY, the address of an API server or a Prometheus, and whether requests go through the proxy; decided by Go.
CLUSTERS = [
    (":1", "https://example.com", True),
    ("10.96.0.0/12", "https://10.96.0.1:443", False),
    ("10.96.0.0/12", "https://10.112.0.1:443", True),
    ("10.96.0.9/12", "https://10.96.0.1", False),
    ("fd00:10:96::/112", "https://[fd00:10:96::1]:443", False),
    ("::ffff:10.0.0.0/104", "https://10.0.0.1", False),
    (".svc,.cluster.local", "https://kubernetes.default.svc", False),
    (".svc", "https://svc", True),
    ("*.svc", "https://kubernetes.default.svc", False),
    ("*.svc", "https://svc", True),
    ("*svc", "https://kubernetes.default.svc", True),
    ("api.example.com:6443", "https://api.example.com:6443", False),
    ("api.example.com:6443", "https://api.example.com", True),
    ("api.example.com:443", "https://api.example.com", False),
    ("API.Example.com", "https://api.example.com", False),
    ("api.example.com", "https://API.example.COM", False),
    (" api.example.com ,\t10.0.0.1", "https://10.0.0.1", False),
    ("[fd00::1]:6443", "https://[fd00::1]:6443", False),
    ("[fd00::1]", "https://[fd00::1]:6443", True),
    ("fd00::1", "https://[fd00::1]:6443", False),
    ("10.0.0.1", "https://[::ffff:10.0.0.1]", False),
    ("10.0.0.", "https://10.0.0.1", True),
    ("", "https://[::ffff:127.0.0.1]", False),
    ("", "https://LOCALHOST", True),
    ("b\u00fccher.de", "https://xn--bcher-kva.de", False),
    ("0.0.0.0/0", "https://10.0.0.1", False),
    ("0.0.0.0/0", "https://example.com", True),
    ("10.0.0.0/33,10.0.0.0/x,/8", "https://10.0.0.1", True),
]


@pytest.mark.parametrize(("no_proxy", "url", "through"), CLUSTERS)
def test_clusters_are_excepted_as_go_programs_except_them(no_proxy: str, url: str, through: bool) -> None:
    found = decide(url, {"HTTPS_PROXY": "proxy", "NO_PROXY": no_proxy})
    assert found == ("http://proxy" if through else DIRECT)


def test_capitals_come_first_and_lower_case_counts_where_they_are_empty() -> None:
    lower = {"https_proxy": "low", "no_proxy": "a.com", "HTTPS_PROXY": "", "NO_PROXY": ""}
    assert decide("https://b.com", lower) == "http://low"
    assert decide("https://a.com", lower) is DIRECT
    assert decide("https://a.com", {**lower, "HTTPS_PROXY": "high", "NO_PROXY": "b.com"}) == "http://high"


def test_a_cgi_program_takes_no_http_proxy_from_its_client() -> None:
    cgi = {"HTTP_PROXY": "http://10.1.2.3:8080", "REQUEST_METHOD": "GET", "HTTPS_PROXY": "https://secure.proxy.tld"}
    with pytest.raises(ProxyError, match="HTTP_PROXY is not used where REQUEST_METHOD is set"):
        decide("http://example.com", cgi)
    assert decide("https://secure.tld/", cgi) == "https://secure.proxy.tld"


@pytest.mark.parametrize("scheme", ["http", "https", "socks5", "socks5h"])
def test_these_proxies_can_be_used(scheme: str) -> None:
    assert proxy_for("https://a.com", {"HTTPS_PROXY": f"{scheme}://u:p@proxy:1"}) == f"{scheme}://u:p@proxy:1"


@pytest.mark.parametrize("value", ["http://proxy:port", "http://pro xy", "https://[fd00::1", "socks5://u:p@"])
def test_a_proxy_without_a_place_is_an_error(value: str) -> None:
    with pytest.raises(ProxyError, match="HTTPS_PROXY: the proxy has no valid host or port; allowed are http, "):
        proxy_for("https://a.com", {"HTTPS_PROXY": value})


def test_any_other_proxy_is_an_error_that_lists_these_and_tells_no_password() -> None:
    with pytest.raises(ProxyError) as caught:
        proxy_for("https://a.com", {"HTTPS_PROXY": "socks6://user:s3cret@proxy"})
    assert str(caught.value).startswith("HTTPS_PROXY: the proxy's scheme is 'socks6'; allowed are http, https, socks5 ")
    assert "s3cret" not in str(caught.value)
