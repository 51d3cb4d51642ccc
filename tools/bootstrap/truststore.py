"""A Java trust store made of the machine's certificates: Bazel's downloader reads no PEM."""

from __future__ import annotations

import base64
import hashlib
import re
import struct

# Java's KeyStore format "JKS", version 2; its integrity hash is salted with these words.
_MAGIC = 0xFEEDFEED
_VERSION = 2
_TRUSTED_CERTIFICATE = 2
_SALT = b"Mighty Aphrodite"
PASSWORD = "changeit"  # what Java assumes for a trust store: it guards nothing
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.S)


def jks_from_pem(pem: str) -> bytes:
    """All certificates of a PEM bundle, each once, as the bytes of a JKS file."""
    certificates = dict.fromkeys(base64.b64decode(body) for body in _CERTIFICATE.findall(pem))
    store = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        store += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"ca{number}")
        store += struct.pack(">Q", 0)  # creation date in ms: constant, so that bytes repeat
        store += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    return store + hashlib.sha1(PASSWORD.encode("utf-16-be") + _SALT + store).digest()


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
