"""The server's folder has a plain path, whatever paths the user has."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text_pipeline.errors import TextPipelineError
from text_pipeline.server.places import ServerFolder, is_plain

# What a file system allows in a name, and what shells, lists of paths and ASCII stumble over.
AWKWARD = " $`;&|<>()[]{}*?!#~'\"\\\n\t:,=%^@éü漢\udcff"
NAMES = st.text(AWKWARD + "ab1", min_size=1, max_size=20).filter(
    lambda name: any(c in AWKWARD for c in name)
)


@given(NAMES)
def test_a_link_leads_from_a_plain_path_to_one_of_any_name(name: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        awkward = Path(made) / name
        awkward.mkdir()
        (awkward / "file").write_text("theirs")
        assert not is_plain(awkward)
        folder = ServerFolder((awkward, Path(made)))
        link = folder.link("repository", awkward)
        assert is_plain(link)
        assert (link / "file").read_text() == "theirs"
        folder.remove()
        folder.remove()
        assert not folder.path.exists()
        assert (awkward / "file").exists(), "what the link led to is the user's"


def test_the_first_plain_place_that_can_be_written_is_taken(tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    folder = ServerFolder((tmp_path / "not there", second, tmp_path))
    assert folder.path.parent == second
    folder.remove()


def test_no_plain_place_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(TextPipelineError, match=r"set TMPDIR to one \(tried .*a b"):
        ServerFolder((tmp_path / "a b",))
    shutil.rmtree(tmp_path)
