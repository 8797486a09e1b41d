"""Files of torch, the standard library and graftjit, whose frames are not compiled by themselves.

In: the name of a code object's file. Out: whether it is skipped. The frame hook ignores such
frames, and no break is resumed inside one.
"""

from __future__ import annotations

import os
from functools import cache

from .. import own_files
from .wrappers import TORCH_FOLDER

# Python functions of ours that stand for the program's own control flow.
WALKED = os.path.join(own_files.PACKAGES["capture"], "operator_models", "walked.py")
_SKIPPED_FOLDERS = (*own_files.FOLDERS, os.path.abspath(TORCH_FOLDER) + os.sep)
# Installed modules that put functions of theirs into the standard library's modules: what comes
# behind `site-packages` or `dist-packages`, of this environment or of another one on the path.
_BACKPORTS = ("typing_extensions.py", "exceptiongroup" + os.sep)
_INSTALLED = "-packages" + os.sep


@cache
def _python_folders(*names: str) -> tuple[str, ...]:
    """The folders of Python's installation with these names, as prefixes."""
    # Loaded at first use: its table of how Python was built takes 5 % of `import graftjit`.
    import sysconfig

    return tuple(os.path.abspath(sysconfig.get_path(name)) + os.sep for name in names)


def skipped_file(name: str) -> bool:
    """Whether code of this file is ignored."""
    if name.startswith("<"):
        # Nodes of autograd call generated code of ours again: a unit for it would make such a node.
        return name.startswith(("<frozen", own_files.GENERATED)) or name == "<string>"
    path = os.path.abspath(name)
    if path == os.path.abspath(WALKED):
        return False
    if path.startswith(_SKIPPED_FOLDERS):
        return True
    _, installed, module = path.rpartition(_INSTALLED)
    if installed and module.startswith(_BACKPORTS):
        return True
    if path.startswith(_python_folders("purelib", "platlib")):
        return False
    return path.startswith(_python_folders("stdlib", "platstdlib"))
