"""Check that no other user can write a file or folder whose content is loaded and executed.

In: a path, or the `os.stat` result of a file. Out: the reason why others can write it, as text, or
"". A folder is checked together with all its parents, since a writer of a parent can replace it.
The administrator (user 0) is trusted. A sticky folder such as /tmp may be a parent, but not the
folder itself.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


def folder_reason(folder: Path) -> str:
    """Why others can write `folder` or one of its parents; "" if they cannot. Missing folders are
    skipped. A name that the file system cannot represent is a reason, too."""
    try:
        os.stat(folder)
    except ValueError as error:  # a NUL byte, or characters without an encoding
        return f"{str(folder)!a}: {error}"
    # found again and reported below
    except OSError:
        pass
    real = Path(os.path.realpath(folder))
    named = folder.absolute()
    for path in dict.fromkeys((real, *real.parents, *named.parents)):
        try:
            facts = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return f"{path}: {error.strerror or error}"
        sticky = path != real and bool(facts.st_mode & stat.S_ISVTX)
        reason = facts_reason(facts, sticky)
        if reason:
            return f"{path} {reason}"
    return ""


def facts_reason(facts: os.stat_result, sticky: bool = False) -> str:
    """Why others can write a file with these facts; "" if they cannot. `sticky`: others may add
    files there, but not replace any."""
    if facts.st_uid not in (0, os.geteuid()):
        return f"belongs to another user ({facts.st_uid})"
    mode = stat.S_IMODE(facts.st_mode)
    by_group = mode & stat.S_IWGRP and not _is_private(facts.st_gid)
    if (by_group or mode & stat.S_IWOTH) and not sticky:
        return f"can be written by others (mode {mode:o})"
    return ""


def make_folder(folder: Path) -> None:
    """Create the folder and its missing parents, accessible to this user only."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(folder))


def _is_private(group: int) -> bool:
    """Whether this is the user's private group, as many systems create it, without other
    members."""
    try:
        found, user = grp.getgrgid(group), pwd.getpwuid(os.geteuid())
    except (KeyError, OSError):  # no such group or user here
        return False
    return user.pw_gid == group and found.gr_name == user.pw_name and not found.gr_mem
