"""Whether a file or folder can be written by others: what is loaded from there and run must be ours alone.

In: a path, or what `os.stat` says of a file. Out: the reason why others can write it, in words, or "". A folder
is asked with all folders above it: who can write one of those can put another in its place. The administrator
(user 0) is trusted; a sticky folder such as /tmp may hold what is ours, but is itself nobody's.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


def folder_reason(folder: Path) -> str:
    """Why `folder`, or one above it, can be written by others; "" if they cannot. Those that are not there yet
    are passed over. A name that the file system cannot have is a reason, too."""
    try:
        os.stat(folder)
    except ValueError as error:  # a NUL byte, or characters without an encoding
        return f"{str(folder)!a}: {error}"
    except OSError:  # found and told of below
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
    """Why others can write what has these facts; "" if they cannot. `sticky`: others may add there, not replace."""
    if facts.st_uid not in (0, os.geteuid()):
        return f"belongs to another user ({facts.st_uid})"
    mode = stat.S_IMODE(facts.st_mode)
    by_group = mode & stat.S_IWGRP and not _is_private(facts.st_gid)
    if (by_group or mode & stat.S_IWOTH) and not sticky:
        return f"can be written by others (mode {mode:o})"
    return ""


def make_folder(folder: Path) -> None:
    """The folder and those above it that are not there, for this user alone."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(folder))


def _is_private(group: int) -> bool:
    """Whether this is the group that many systems make for each user, with nobody else in it."""
    try:
        found, user = grp.getgrgid(group), pwd.getpwuid(os.geteuid())
    except (KeyError, OSError):  # no such group or user here
        return False
    return user.pw_gid == group and found.gr_name == user.pw_name and not found.gr_mem
