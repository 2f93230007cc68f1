"""The person's own profile: where it lies, reading it, and writing it in one step.

It is written aside and renamed: whatever fails on the way, the old file is still there.
"""

from __future__ import annotations

import os
from pathlib import Path

from tonnage.plan.profile import LARGEST_BYTES, Profile, read_profile, write_profile
from tonnage.probe.plain_file import read_text, replace_text


def own_path() -> Path:
    """Return where the profile lies: `TONNAGE_PROFILE`, else the XDG configuration folder."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111  pathlib raises without a home
    return Path(os.environ.get("TONNAGE_PROFILE") or f"{base}/tonnage/profile.toml")


def read_own() -> Profile:
    """Return the person's profile; an empty one where there is no file.

    Raises
    ------
    BadFileError
        The file is damaged.
    """
    path = own_path()
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return Profile()
    except OSError:
        pass  # reading it says what is wrong
    text = read_text(path, LARGEST_BYTES, "mend it, remove it, or plan with --no-profile")
    return read_profile(text, str(path))


def write_own(profile: Profile) -> Path:
    """Write the profile aside, then in one step in place of the old file.

    Raises
    ------
    OutsideError
        The folder or file cannot be written; the old file is as it was.
    """
    path = own_path()
    fix = "free space or mend its permissions, or set TONNAGE_PROFILE to another file"
    replace_text(path, write_profile(profile), fix=fix)
    return path
