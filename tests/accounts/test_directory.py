"""Logging in with a directory, where slapd and the extra `ldap` are installed."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from pytest_django import Settings

from tests.accounts.conftest import PASSWORD
from tests.clusters.kubernetes.certificates import authority
from tests.rows import person
from tests.runtime.processes import eventually

pytest.importorskip("django_auth_ldap", reason="the extra `ldap` is not installed")
SLAPD = shutil.which("slapd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(SLAPD is None, reason="slapd is not installed"),
]
AUTHORITY = authority()
BASE = "dc=example,dc=com"
CONFIGURATION = f"""
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile FOLDER/pid
TLSCertificateFile FOLDER/server.pem
TLSCertificateKeyFile FOLDER/server.key
database mdb
maxsize 10485760
suffix "{BASE}"
rootdn "cn=root,{BASE}"
rootpw root-password
directory FOLDER
"""
ENTRIES = f"""
dn: {BASE}
objectClass: dcObject
objectClass: organization
dc: example
o: Example

dn: uid=ada,{BASE}
objectClass: inetOrgPerson
uid: ada
cn: Ada
sn: Ada
userPassword: {PASSWORD}

dn: uid=ana,{BASE}
objectClass: inetOrgPerson
uid: ana
cn: Ana
sn: Ana
userPassword: a password in the directory

dn: cn=fleet-ops,{BASE}
objectClass: groupOfNames
cn: fleet-ops
member: uid=ada,{BASE}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Run slapd with two people and a group; return its address and folder."""
    folder = tmp_path_factory.mktemp("slapd")
    pair = AUTHORITY.issue("directory", "127.0.0.1")
    (folder / "server.pem").write_text(pair.certificate)
    (folder / "server.key").write_text(pair.key)
    (folder / "slapd.conf").write_text(CONFIGURATION.replace("FOLDER", str(folder)))
    (folder / "entries.ldif").write_text(ENTRIES)
    options = ["-f", str(folder / "slapd.conf")]
    subprocess.run([str(SLAPD), "-T", "add", *options, "-l", str(folder / "entries.ldif")], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"ldap://127.0.0.1:{port}"
    process = subprocess.Popen([str(SLAPD), "-d", "0", "-h", address, *options])

    def is_listening() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    eventually(is_listening)
    yield address, folder
    process.terminate()
    process.wait(timeout=10)


@pytest.fixture(autouse=True)
def _configured(server: tuple[str, Path], settings: Settings) -> None:
    settings.LDAP_SERVER, settings.LDAP_USERS, settings.LDAP_GROUPS = server[0], BASE, BASE
    settings.LDAP_BIND_DN, settings.LDAP_BIND_PASSWORD = f"cn=root,{BASE}", "root-password"
    settings.LDAP_ROLES = {"fleet-ops": "operator"}
    settings.AUTHENTICATION_BACKENDS = [
        "django.contrib.auth.backends.ModelBackend",
        "fleetui.accounts.directory.DirectoryBackend",
    ]


def log_in(name: str, password: str) -> tuple[Client, int]:
    client = Client()
    return client, client.post("/login/", {"username": name, "password": password}).status_code


def test_a_user_of_the_directory_logs_in_with_the_roles_of_the_groups(
    server: tuple[str, Path], reported: list[str]
) -> None:
    client, status = log_in("ada", PASSWORD)
    roles = set(User.objects.get().groups.values_list("name", flat=True))
    change = f"dn: cn=fleet-ops,{BASE}\nchangetype: modify\nreplace: member\nmember: uid=ana,{BASE}\n"
    command = ["ldapmodify", "-x", "-H", server[0], "-D", f"cn=root,{BASE}", "-w", "root-password"]
    subprocess.run(command, input=change, text=True, check=True, capture_output=True)
    log_in("ADA", PASSWORD)

    assert (status, client.get("/clusters/").status_code) == (302, 403)
    assert roles == {"operator"}
    assert User.objects.get().groups.count() == 0
    assert not User.objects.get().has_usable_password()
    assert reported == ["in ada", "in ada"]


def test_a_wrong_or_empty_password_and_a_filter_for_a_name_are_refused(reported: list[str]) -> None:
    guesses = [("ada", "a guess"), ("ada", ""), ("*", PASSWORD), ("ada)(uid=*", PASSWORD), ("gone", PASSWORD)]

    statuses = [log_in(name, password)[1] for name, password in guesses]

    assert statuses == [422] * 5
    assert User.objects.count() == 0
    assert len(reported) == 4


def test_an_account_that_was_disabled_stays_so() -> None:
    log_in("ada", PASSWORD)
    User.objects.update(is_active=False)
    given = {"username": "ada", "password": PASSWORD}

    token = Client().post("/api/v1/token", given, content_type="application/json")

    assert (log_in("ada", PASSWORD)[1], token.status_code) == (422, 401)


def test_an_entry_takes_no_account_over() -> None:
    person("ana", "viewer")
    User.objects.create_user("ada")

    assert log_in("ana", "a password in the directory")[1] == 422
    assert log_in("ada", PASSWORD)[1] == 422
    assert log_in("ana", PASSWORD)[1] == 302
    assert not SocialAccount.objects.exists()


def test_tls_is_started_with_a_directory_whose_authority_is_known(settings: Settings, tmp_path: Path) -> None:
    settings.LDAP_START_TLS = True
    statuses = []
    for one in (authority("another"), AUTHORITY):
        settings.LDAP_CA = str(tmp_path / "ca.pem")
        Path(settings.LDAP_CA).write_text(one.pem)
        statuses.append(log_in("ada", PASSWORD)[1])

    assert statuses == [422, 302]


def test_a_directory_that_does_not_respond_refuses_and_others_still_log_in(settings: Settings) -> None:
    settings.LDAP_SERVER = "ldap://127.0.0.1:1"
    person("ana", "viewer")
    cache.clear()

    assert log_in("ada", PASSWORD)[1] == 422
    assert log_in("ana", PASSWORD)[1] == 302
