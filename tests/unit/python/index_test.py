"""pip's configuration reaches uv."""

from pathlib import Path

import pytest

from tools.bootstrap.errors import BootstrapError
from tools.python.environment import index


def test_reads_the_machines_pip_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://example.org/mirror/simple\ntimeout = 60\n"
        "[download]\ntimeout = 1\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_TRUSTED_HOST", "mirror.example.org")
    monkeypatch.delenv("PIP_DEFAULT_TIMEOUT", raising=False)
    settings = index.pip_settings()
    assert settings["index-url"] == "https://example.org/mirror/simple"
    assert settings["timeout"] == "60"
    assert settings["trusted-host"] == "mirror.example.org"


def test_the_environment_wins_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://example.org/file/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://example.org/env/simple")
    assert index.pip_settings()["index-url"] == "https://example.org/env/simple"


@pytest.mark.parametrize("text", [b"[global\nindex-url = x\n", b"[global]\nindex-url = \xff\n"])
def test_a_file_that_pip_cannot_read_is_named(
    text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.conf").write_bytes(text)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    with pytest.raises(BootstrapError, match=r"pip cannot read its settings: .*/pip\.conf.* mend"):
        index.pip_settings()


def test_translates_what_uv_knows() -> None:
    settings = {
        "index-url": "https://example.org/mirror/simple",
        "extra-index-url": "https://example.org/more/simple\nfile:///srv/wheels",
        "timeout": "60",
        "proxy": "proxy.example.org:3128",
        "cert": "/etc/ssl/bundle.crt",
        "trusted-host": "mirror.example.org\nmore.example.org",
    }
    assert index.uv_environment(settings) == {
        "UV_SYSTEM_CERTS": "1",
        "UV_DEFAULT_INDEX": "https://example.org/mirror/simple",
        "UV_INDEX": "https://example.org/more/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_HTTP_TIMEOUT": "60",
        "ALL_PROXY": "http://proxy.example.org:3128",
        "SSL_CERT_FILE": "/etc/ssl/bundle.crt",
        "UV_INSECURE_HOST": "mirror.example.org more.example.org",
    }


def test_a_machine_without_configuration_adds_only_its_certificates() -> None:
    assert index.uv_environment({}) == {"UV_SYSTEM_CERTS": "1"}
