"""A Java trust store made of the machine's certificates: Bazel's downloader reads no PEM."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct

from tools.bootstrap.errors import BootstrapError

# Java's KeyStore format "JKS", version 2; its integrity hash is salted with these words.
_MAGIC = 0xFEEDFEED
_VERSION = 2
_TRUSTED_CERTIFICATE = 2
_SALT = b"Mighty Aphrodite"
PASSWORD = "changeit"  # what Java assumes for a trust store: it guards nothing
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.S)


def jks_from_pem(pem: str) -> bytes:
    """All certificates of a PEM bundle, each once, as the bytes of a JKS file.

    Raises BootstrapError where one is damaged.
    """
    try:
        certificates = dict.fromkeys(base64.b64decode(body) for body in _CERTIFICATE.findall(pem))
    except binascii.Error as error:
        raise BootstrapError(
            f"a certificate of this machine's bundle is damaged ({error}): run "
            "update-ca-certificates, or set SSL_CERT_FILE to a bundle that is whole"
        ) from None
    store = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        store += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"ca{number}")
        store += struct.pack(">Q", 0)  # creation date in ms: constant, so that bytes repeat
        store += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    return store + hashlib.sha1(PASSWORD.encode("utf-16-be") + _SALT + store).digest()


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
