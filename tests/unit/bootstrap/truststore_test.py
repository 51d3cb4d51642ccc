"""The JKS writer, checked by a reader written from the format's description."""

from __future__ import annotations

import base64
import hashlib
import struct

import pytest

from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.truststore import jks_from_pem


def pem_of(der: bytes) -> str:
    body = base64.encodebytes(der).decode()
    return f"# a comment\n-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"


def read_jks(store: bytes, password: str) -> dict[str, bytes]:
    """Alias -> certificate; checks the magic number, the version and the digest."""
    content, digest = store[:-20], store[-20:]
    salted = password.encode("utf-16-be") + b"Mighty Aphrodite" + content
    assert hashlib.sha1(salted).digest() == digest
    position = 0

    def take(form: str) -> int:
        nonlocal position
        (value,) = struct.unpack_from(form, content, position)
        position += struct.calcsize(form)
        return int(value)

    def take_bytes(length: int) -> bytes:
        nonlocal position
        position += length
        return content[position - length : position]

    assert (take(">I"), take(">I")) == (0xFEEDFEED, 2)
    entries = {}
    for _ in range(take(">I")):
        assert take(">I") == 2
        alias = take_bytes(take(">H")).decode()
        take(">Q")
        assert take_bytes(take(">H")) == b"X.509"
        entries[alias] = take_bytes(take(">I"))
    assert position == len(content)
    return entries


def test_every_certificate_comes_back_once_and_in_order() -> None:
    first, second = b"\x30\x82" + bytes(range(256)), b"\x30\x03abc"
    store = jks_from_pem(pem_of(first) + pem_of(second) + pem_of(first))
    assert read_jks(store, "changeit") == {"ca0": first, "ca1": second}


def test_the_same_bundle_gives_the_same_bytes() -> None:
    bundle = pem_of(b"one") + pem_of(b"two")
    assert jks_from_pem(bundle) == jks_from_pem(bundle)


def test_a_damaged_certificate_is_told() -> None:
    with pytest.raises(BootstrapError, match=r"is damaged .*: run update-ca-certificates"):
        jks_from_pem(pem_of(b"one") + pem_of(b"three").replace("=", ""))
