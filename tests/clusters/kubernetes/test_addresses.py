"""Which addresses connections may go to (`rules/kubernetes-driver.md#addresses`)."""

from ipaddress import ip_network

import pytest

from clusters.drivers.kubernetes.sockets import (
    AddressNotAllowed,
    AddressRules,
    NameNotResolved,
    check_address,
    checked_addresses,
)


def is_allowed(address: str, rules: AddressRules) -> bool:
    try:
        check_address(address, rules)
    except AddressNotAllowed:
        return False
    return True


@pytest.mark.nightly
@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "::",  # unspecified
        "127.0.0.1",
        "127.255.0.9",
        "::1",  # loopback
        "169.254.0.1",
        "169.254.169.254",
        "fe80::1",
        "fe80::1%eth0",
        "febf::1",  # link-local
        "224.0.0.1",
        "239.255.255.255",
        "ff02::1",  # multicast
        "240.0.0.1",
        "255.255.255.255",
        "100::1",
        "4000::1",  # reserved
        "100.100.100.200",
        "fd00:ec2::254",  # metadata services
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:0.0.0.0",
        "::ffff:100.100.100.200",
        "64:ff9b::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::224.0.0.1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
    ],
)
def test_always_denied(address: str) -> None:
    everywhere = AddressRules(networks=(ip_network("0.0.0.0/0"), ip_network("::/0")))

    assert not is_allowed(address, AddressRules())
    assert not is_allowed(address, everywhere)


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.7",
        "172.16.3.4",
        "192.168.1.1",
        "100.64.0.1",
        "8.8.8.8",
        "fd12:3456::1",
        "2a00:1450::1",
        "::ffff:10.0.0.7",
        "64:ff9b::8.8.8.8",
    ],
)
def test_allowed_by_default(address: str) -> None:
    assert is_allowed(address, AddressRules())


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("10.1.0.7", True),
        ("::ffff:10.1.0.7", True),
        ("fd00:1::9", True),
        ("10.2.0.7", False),
        ("8.8.8.8", False),
        ("fd00:2::9", False),
        ("127.0.0.1", False),
    ],
)
def test_networks_restrict(address: str, allowed: bool) -> None:
    rules = AddressRules(
        networks=(ip_network("10.1.0.0/16"), ip_network("fd00:1::/32"))
    )

    assert is_allowed(address, rules) is allowed


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_may_be_allowed(address: str) -> None:
    rules = AddressRules(networks=(ip_network("10.1.0.0/16"),), allow_loopback=True)

    assert is_allowed(address, rules)
    assert not is_allowed("169.254.169.254", rules)


def test_the_message_names_address_and_setting() -> None:
    with pytest.raises(
        AddressNotAllowed, match=r"127\.0\.0\.1 is not allowed: loopback"
    ) as error:
        check_address("127.0.0.1", AddressRules())
    assert error.value.setting == "FLEETUI_MEMBER_LOOPBACK=1 allows it"

    with pytest.raises(
        AddressNotAllowed, match="outside of the networks of members"
    ) as error:
        check_address("8.8.8.8", AddressRules(networks=(ip_network("10.0.0.0/8"),)))
    assert error.value.setting == "FLEETUI_MEMBER_NETWORKS lists the allowed networks"


def test_one_denied_address_of_a_name_denies_the_name() -> None:
    rules = AddressRules(resolve=lambda host, port: ["10.0.0.7", "169.254.169.254"])

    with pytest.raises(AddressNotAllowed):
        checked_addresses("member.test", 443, rules, seconds=1)


def test_names_and_addresses() -> None:
    rules = AddressRules(resolve=lambda host, port: ["10.0.0.7", "10.0.0.8"])

    assert checked_addresses("member.test", 443, rules, seconds=1) == [
        "10.0.0.7",
        "10.0.0.8",
    ]
    assert checked_addresses("10.0.0.9", 443, rules, seconds=1) == ["10.0.0.9"]
    with pytest.raises(NameNotResolved):
        checked_addresses(
            "none.test", 443, AddressRules(resolve=lambda host, port: []), seconds=1
        )


@pytest.mark.parametrize(
    "spelling", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1"]
)
def test_other_spellings_of_loopback_are_resolved_and_denied(spelling: str) -> None:
    with pytest.raises((AddressNotAllowed, NameNotResolved)):
        checked_addresses(spelling, 443, AddressRules(), seconds=1)
