"""A proxy between a party and its coordinator: which one, what it is asked, and its refusals."""

import pytest

from siloweave.errors import InputError
from siloweave.federation import certificates
from siloweave.federation.proxies import proxy_for, proxy_in
from tests.federation import connecting, tls

VARIABLES = ("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "HTTP_PROXY")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def home(tmp_path):
    certificates.make_certificates(tmp_path, [])
    return tmp_path


def way_to(host, given=None, *, is_local=False):
    found = proxy_for(host, 9092, given, is_local=is_local)
    return found and found.address


def test_the_proxy_of_the_environment_is_taken_but_for_hosts_that_it_is_not_for(monkeypatch):
    assert way_to("office.example.org") is None
    monkeypatch.setenv("ALL_PROXY", "http://all.example.org:1")
    assert way_to("office.example.org") == "all.example.org:1"
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org:8080")
    assert way_to("office.example.org") == "proxy.example.org:8080"
    assert way_to("127.0.0.1", is_local=True) is None
    assert way_to("127.0.0.1", "http://own:3", is_local=True) == "own:3"
    monkeypatch.setenv("NO_PROXY", "other.org, example.org")
    assert way_to("office.example.org") is None
    assert way_to("office.example.com") == "proxy.example.org:8080"
    assert way_to("office.example.org", "own") == "own:3128"


@pytest.mark.parametrize("url", ["socks5://a:1", "https://a:1", "http://", "http://a:x", "ftp://a"])
def test_another_kind_of_proxy_is_refused(url):
    with pytest.raises(InputError, match="must be http://HOST:PORT"):
        proxy_in(url)


def test_a_password_is_in_no_text():
    with pytest.raises(InputError) as caught:
        proxy_in("socks5://ann:hidden@proxy.example.org:1")
    assert "hidden" not in str(caught.value)
    found = proxy_in("http://ann:h%40idden@proxy.example.org:1")
    assert (found.user, found.password) == ("ann", "h@idden")
    assert found.address == "proxy.example.org:1"


def check(port, home, proxy, user=""):
    found = proxy_in(f"http://{user}127.0.0.1:{proxy.port}")
    certificates.check_server("localhost", port, home / "ca.crt", found)


def test_tls_is_between_the_ends_and_the_proxy_sees_a_name(home):
    with tls.server(home) as port, connecting.proxy() as proxy:
        check(port, home, proxy)
        assert len(proxy.heads) == 1
        assert proxy.heads[0].startswith(f"CONNECT localhost:{port} HTTP/1.1\r\n".encode())
        assert b"uthorization" not in proxy.heads[0]


def test_a_password_is_asked_for_and_is_enough(home):
    word = b"Proxy-Authorization: Basic YW5uOmJlZQ=="  # ann:bee
    with tls.server(home) as port, connecting.proxy(word=word) as proxy:
        with pytest.raises(InputError, match=r"proxy 127\.0\.0\.1:\d+ asks for a password \(407"):
            check(port, home, proxy)
        with pytest.raises(InputError, match="asks for another password than it was shown"):
            check(port, home, proxy, "ann:cat@")
        check(port, home, proxy, "ann:bee@")


def test_a_refusal_names_the_proxy_and_says_what_to_do(home):
    match = r"proxy 127\.0\.0\.1:\d+ refuses to connect to localhost:\d+ \(403 Said\)\. Ask who"
    with (
        tls.server(home) as port,
        connecting.proxy(403) as proxy,
        pytest.raises(InputError, match=match),
    ):
        check(port, home, proxy)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_that_does_not_reach_the_coordinator_may_do_so_later(home, status):
    with connecting.proxy(status) as proxy, pytest.raises(ConnectionError, match="does not reach"):
        check(9, home, proxy)


def test_a_proxy_that_is_not_there_is_named(home):
    with connecting.proxy() as proxy:
        pass
    match = r"the proxy 127\.0\.0\.1:\d+ is not reached \(.*HTTPS_PROXY names the right one"
    with pytest.raises(ConnectionError, match=match):
        check(9, home, proxy)


def test_what_is_no_proxy_is_named(home):
    with tls.server(home, plain=True) as port:
        found = proxy_in(f"http://127.0.0.1:{port}")
        with pytest.raises(InputError, match=r"refuses to connect to localhost:9 \(400 Bad"):
            certificates.check_server("localhost", 9, home / "ca.crt", found)


def test_a_proxy_that_opens_tls_is_refused(home, tmp_path):
    (tmp_path / "other").mkdir()
    certificates.make_certificates(tmp_path / "other", [])
    with (
        tls.server(tmp_path / "other") as port,
        connecting.proxy() as proxy,
        pytest.raises(InputError, match=r"was not issued by .*may open TLS"),
    ):
        check(port, home, proxy)
