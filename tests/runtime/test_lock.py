import subprocess
import sys

import pytest

from nogs.runtime.errors import InputError
from nogs.runtime.lock import only_one


def test_a_second_process_is_refused_until_the_first_has_ended(tmp_path):
    script = f"from nogs.runtime.lock import only_one; only_one({str(tmp_path)!r}).__enter__(); print('ok')"
    with only_one(tmp_path):
        other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert "Another process is working in" in other.stderr
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "ok\n"


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="choose another folder"), only_one(tmp_path / "file"):
        pass
