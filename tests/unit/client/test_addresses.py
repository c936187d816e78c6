"""How addresses of servers are written, and which of them a proxy stands before."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text_pipeline.client import addresses, proxies
from text_pipeline.errors import TextPipelineError

PROXY = "http://192.0.2.1:3128"


@given(st.ip_addresses(), st.integers(1, 65535))
def test_every_address_is_read_as_it_was_written(address, port: int) -> None:
    url = addresses.joined(str(address), port)
    assert addresses.split(url, "gRPC") == (str(address), port)


@given(st.ip_addresses().filter(lambda address: not address.is_link_local))
def test_an_address_stands_for_itself_with_and_without_brackets(address) -> None:
    for written in (str(address), f"[{address}]"):
        assert ipaddress.ip_address(addresses.resolve(written)) == address


def test_a_name_of_both_kinds_stands_for_its_ipv4_address() -> None:
    assert addresses.resolve("localhost") == "127.0.0.1"


@pytest.mark.parametrize("host", ["nowhere.invalid", "", "a b", "é" * 70, "http://127.0.0.1", "[]"])
def test_an_unknown_name_is_an_error_that_says_so(host: str) -> None:
    with pytest.raises(TextPipelineError, match="no host of the name"):
        addresses.resolve(host)


def test_an_address_of_one_link_is_refused() -> None:
    with pytest.raises(TextPipelineError, match="Triton cannot listen on"):
        addresses.resolve("fe80::1")


@pytest.mark.parametrize(
    "url", ["", "here", ":8001", "::1:8001", "[::1]", "[here]:8001", "here:0", "here:65536",
            "http://here:8001", "here:8001/", "a b:8001", "127.0.0.1:http"],
)  # fmt: skip
def test_what_is_no_url_says_what_was_expected(url: str) -> None:
    with pytest.raises(TextPipelineError, match="expected HOST:PORT of the HTTP endpoint"):
        addresses.split(url, "HTTP")


def test_every_address_of_a_machine_is_reached_by_its_loopback() -> None:
    found = [addresses.from_this_machine(host) for host in ("0.0.0.0", "::", "192.0.2.7")]
    assert found == ["127.0.0.1", "::1", "192.0.2.7"]


@pytest.fixture
def behind_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in proxies.VARIABLES:
        monkeypatch.setenv(name, PROXY)
        monkeypatch.setenv(name.upper(), PROXY)
    monkeypatch.setenv("no_proxy", "intranet.example,192.0.2.9")


@pytest.mark.usefixtures("behind_proxies")
@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "0.0.0.0", "[::]", "192.0.2.9",
             "server.intranet.example"],
)  # fmt: skip
def test_no_proxy_stands_before_this_machine_and_exceptions(host: str) -> None:
    assert proxies.grpc_options(f"{host}:8001") == [("grpc.enable_http_proxy", 0)]
    names = {name.lower() for name in proxies.environment(f"{host}:8001")}
    assert names.isdisjoint(proxies.VARIABLES)


@pytest.mark.usefixtures("behind_proxies")
@pytest.mark.parametrize("host", ["192.0.2.7", "[2001:db8::1]", "nowhere.invalid"])
def test_other_hosts_follow_the_environment(host: str) -> None:
    assert proxies.grpc_options(f"{host}:8001") == []
    assert proxies.environment(f"{host}:8001")["https_proxy"] == PROXY
