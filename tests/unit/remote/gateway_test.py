"""What the gateway demands of its clients."""

from pathlib import Path

import pytest

from tools.remote.errors import ServiceError
from tools.remote.gateway import Security, gateway


def written(folder: Path, security: Security) -> str:
    gateway(Path("/p"), folder, security, port=7, store="127.0.0.1:8", scheduler="127.0.0.1:9")
    return (folder / "nginx.conf").read_text()


def files(folder: Path, token: str = "s3cret") -> Security:
    for name in ("certificate", "key"):
        (folder / name).write_text(name)
    (folder / "token").write_text(f"{token}\n", errors="surrogateescape")
    return Security(folder / "certificate", folder / "key", folder / "token")


def test_it_listens_on_loopback_alone(tmp_path: Path) -> None:
    assert "listen 127.0.0.1:7;" in written(tmp_path, Security())


def test_without_a_token_nobody_is_refused(tmp_path: Path) -> None:
    assert "map $http_authorization $refused { default 0; }" in written(tmp_path, Security())


def test_with_a_token_everybody_else_is_refused(tmp_path: Path) -> None:
    text = written(tmp_path / "gateway", files(tmp_path))
    assert 'map $http_authorization $refused { default 1; "Bearer s3cret" 0; }' in text
    assert "listen 127.0.0.1:7 ssl;" in text
    mode = (tmp_path / "gateway/nginx.conf").stat().st_mode
    assert mode & 0o077 == 0, "the token is for nobody else to read"


def test_files_are_sent_past_the_scheduler(tmp_path: Path) -> None:
    text = " ".join(written(tmp_path, Security()).split())
    assert "upstream store { server 127.0.0.1:8;" in text
    assert "location /google.bytestream.ByteStream/ { grpc_pass grpc://store; }" in text


def test_a_token_in_plain_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="give --tls-certificate too"):
        Security(token=files(tmp_path).token).check()


def test_half_a_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="belong together"):
        Security(certificate=files(tmp_path).certificate).check()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    files(tmp_path)
    with pytest.raises(ServiceError, match=r"cannot read .*/gone"):
        Security(tmp_path / "gone", tmp_path / "key").check()


@pytest.mark.parametrize("token", ["", "a b", "\udcff", 'a"; return 200; #'])
def test_a_token_that_would_change_the_configuration_is_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(ServiceError, match="must hold one token"):
        files(tmp_path, token).check()


def test_a_path_with_spaces_and_quotes_is_one_word(tmp_path: Path) -> None:
    folder = tmp_path / 'my "state"'
    text = written(folder / "gateway", Security())
    assert f'pid "{tmp_path}/my \\"state\\"/gateway/pid";' in text
    folder.mkdir(exist_ok=True)
    text = written(folder / "gateway", files(folder))
    assert f'ssl_certificate_key "{tmp_path}/my \\"state\\"/key";' in text


def test_good_files_pass(tmp_path: Path) -> None:
    files(tmp_path).check()


def test_the_names_of_build_and_target_go_through(tmp_path: Path) -> None:
    """nginx drops headers with dots in their names unless told otherwise."""
    assert "ignore_invalid_headers off;" in written(tmp_path, Security())
