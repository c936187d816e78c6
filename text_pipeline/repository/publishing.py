"""How files get into a repository: made beside their place, moved there at once, or not at all."""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from text_pipeline.errors import TextPipelineError

STAGING_PREFIX = ".export-"
"""Triton takes only numbers for versions, so it never looks into such a folder."""
_ADVICE = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "the quota there is used up: make room there, or ask for more",
    errno.EFBIG: "allow larger files there (ulimit -f, the kind of file system)",
    errno.EROFS: "it is mounted read-only: mount it for writing",
    errno.EACCES: "let this user write there (chmod, chown)",
    errno.EPERM: "let this user write there (chmod, chown, chattr)",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.EXDEV: "it is on another file system than the folder around it: remove that link",
    errno.EBUSY: "it is in use, perhaps as a mount: unmount it",
    errno.EIO: "the disk, or the network to it, has failed: look at the system's log (dmesg)",
}


@contextmanager
def undone_on_failure() -> Iterator[ExitStack]:
    """Yields where to write down how each change is undone; on an error all are, the last first."""
    with ExitStack() as undo:
        yield undo
        undo.pop_all()


@contextmanager
def staging(beside: Path) -> Iterator[Path]:
    """A folder that is there for a while, on the file system of `beside`."""
    with tempfile.TemporaryDirectory(
        prefix=STAGING_PREFIX, dir=beside, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def make_folder(folder: Path, undo: ExitStack) -> None:
    """Makes a folder and those around it, where they are missing."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        undo.callback(_remove_empty, path)


def copy(source: Path, target: Path, undo: ExitStack) -> None:
    """Copies a file."""
    undo.callback(_remove, target)  # first, for a full disk leaves a part of it
    shutil.copyfile(source, target)


def move(source: Path, target: Path, aside: Path, undo: ExitStack) -> None:
    """Renames a file or folder; what an interrupted export left in its place goes to `aside`."""
    if os.path.lexists(target):
        target.rename(aside)
        undo.callback(aside.rename, target)
    source.rename(target)
    undo.callback(target.rename, source)


@contextmanager
def reporting(places: Sequence[Path]) -> Iterator[None]:
    """Makes one line with advice of the error that a file in one of `places` cannot be written."""
    try:
        yield
    except Exception as error:  # the tokenizers library has no error class for a full disk
        named = _named(error)
        is_elsewhere = named and not any(Path(named).is_relative_to(place) for place in places)
        if (reason := _reason(error)) is None or is_elsewhere:
            raise
        number, text = reason
        where = named or " or ".join(map(str, _on_different_file_systems(places)))
        advice = _ADVICE.get(number, "see what is there")
        raise TextPipelineError(
            f"{where} cannot be written ({text}): nothing was published; {advice}, or choose "
            "another --repository"
        ) from error


def _reason(error: Exception) -> tuple[int, str] | None:
    """Number and text of why a file could not be written; None if that is not what happened."""
    if isinstance(error, OSError):
        if error.errno is not None:
            return error.errno, os.strerror(error.errno)
        # NumPy's, which has no number.
        is_part = re.fullmatch(r"\d+ requested and \d+ written", str(error))
        return (errno.ENOSPC, os.strerror(errno.ENOSPC)) if is_part else None
    # The tokenizers library's, in Rust.
    found = re.fullmatch(r"(.+) \(os error (\d+)\)", str(error))
    return (int(found[2]), found[1]) if found else None


def _named(error: Exception) -> str:
    """The file or folder that an error is about; the one around it, if it was only staged."""
    names = [getattr(error, name, None) or "" for name in ("filename2", "filename")]
    lasting = [str(name).partition(f"/{STAGING_PREFIX}")[0] for name in names]
    return max(lasting, key=len)


def _on_different_file_systems(places: Sequence[Path]) -> list[Path]:
    """The first of `places`, and those that lie elsewhere."""
    found: dict[int, Path] = {}
    for place in places:
        existing = next(path for path in (place, *place.absolute().parents) if path.exists())
        found.setdefault(existing.stat().st_dev, place)
    return list(found.values())


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
