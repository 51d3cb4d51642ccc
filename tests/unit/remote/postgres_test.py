"""A database is made whole or not at all, whatever ends its making."""

from pathlib import Path

import pytest

from tools.remote import postgres
from tools.remote.errors import ServiceError
from tools.remote.postgres import Postgres

# $2 is the folder to fill.
_INITDB = "#!/bin/bash\ntouch $2/PG_VERSION\n{end}\n"


@pytest.fixture
def initdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An initdb, still to be written, that runs as nobody else."""
    # Not even as root can a sandbox give a folder away.
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    program = tmp_path / "programs" / postgres._BIN / "initdb"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    return program


def test_what_a_killed_initdb_left_is_made_anew(initdb: Path, tmp_path: Path) -> None:
    database = Postgres(tmp_path / "programs", tmp_path, 1)
    initdb.write_text(_INITDB.format(end="kill -KILL $$"))
    with pytest.raises(ServiceError, match=r"cannot make a database in .*: it said nothing"):
        database.initialise()
    assert not (tmp_path / "database").exists()
    initdb.write_text(_INITDB.format(end="touch $2/whole"))
    database.initialise()
    assert {path.name for path in (tmp_path / "database").iterdir()} == {"PG_VERSION", "whole"}


def test_a_database_is_made_once(initdb: Path, tmp_path: Path) -> None:
    database = Postgres(tmp_path / "programs", tmp_path, 1)
    initdb.write_text(_INITDB.format(end=""))
    database.initialise()
    initdb.write_text("#!/bin/bash\nexit 1\n")
    database.initialise()
