"""Certificate authorities, certificates and keys for tests, as PEM text."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Pair:
    certificate: str
    key: str


class Authority:
    """A certificate authority."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key.public_key(), days=30)
        usage = x509.KeyUsage(
            True, False, False, False, False, True, True, False, False
        )
        self._certificate = (
            builder.add_extension(
                x509.BasicConstraints(ca=True, path_length=None), critical=True
            )
            .add_extension(usage, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, name: str = "member", *hosts: str, days: int = 30) -> Pair:
        """Issue a certificate for server and client; `days` < 0: it expired so many days ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [
            _general_name(host)
            for host in hosts or ("127.0.0.1", "localhost", "member.test")
        ]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(
            self._key.public_key()
        )
        certificate = (
            _builder(_name(name), self._name, key.public_key(), days=days)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return Pair(
            certificate.public_bytes(serialization.Encoding.PEM).decode(), key_pem(key)
        )


@cache
def authority(name: str = "test") -> Authority:
    return Authority(name)


def key_pem(key: ec.EllipticCurvePrivateKey, *, password: bytes | None = None) -> str:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password)
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, encryption).decode()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int
) -> x509.CertificateBuilder:
    until = datetime.now(UTC) + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(until, datetime.now(UTC)) - timedelta(days=60))
        .not_valid_after(until)
    )
