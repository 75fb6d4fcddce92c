"""Checks the owners and modes of files that only the controller's user may read or change."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cli.doctor.findings import FAIL, OK, WARN, Finding
from wire import trusted_paths
from wire.trusted_paths import UntrustedPath

if TYPE_CHECKING:
    from controller.config import Config

SECRETS = ("token", "token.read", "corral.db", "tls/ca.key", "tls/certificate.key")
"""Files of the state directory that only the controller's user may read."""


@contextmanager
def as_owner_of(directory: Path) -> Iterator[bool]:
    """Run the body as the owner of `directory`, because the rules for trusted paths depend on the user. Yield
    whether this is possible: root can be every user, and another user only itself.
    """
    uid = directory.stat().st_uid
    if uid == os.geteuid():
        yield True
        return
    if os.geteuid() != 0:
        yield False
        return
    groups, gid = os.getgroups(), os.getegid()
    account = pwd.getpwuid(uid)
    os.setgroups(os.getgrouplist(account.pw_name, account.pw_gid))
    os.setegid(account.pw_gid)
    os.seteuid(uid)
    try:
        yield True
    finally:
        os.seteuid(0)
        os.setegid(gid)
        os.setgroups(groups)


def check_permissions(config: Config) -> list[Finding]:
    """Return the findings about the state directory, its secret files and the plugin files. The
    configuration file was checked when it was loaded. Call this as the user of the controller.
    """
    found = []
    try:
        os.close(trusted_paths.open_directory(str(config.state_dir)))
    except (UntrustedPath, OSError) as error:
        found.append(Finding("permissions", FAIL, str(error), "The controller does not start with it."))
    for path in config.plugin_files:
        try:
            trusted_paths.check_file(str(path))
        except (UntrustedPath, OSError) as error:
            found.append(Finding("permissions", FAIL, str(error), "Correct the owner and the mode."))
    found += _readable_secrets(config.state_dir / name for name in SECRETS)
    if config.api.key:
        found += _readable_secrets([Path(config.api.key)])
    users = "root" if os.geteuid() == 0 else f"{_user()} and root"
    return found or [Finding("permissions", OK, f"only {users} can change the controller's files")]


def _readable_secrets(paths: Iterable[Path]) -> list[Finding]:
    found = []
    for path in paths:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue  # Not every controller has all of these files.
        if mode & 0o077:
            message = f"other users may have access to {path}: it has mode {mode:04o}"
            found.append(Finding("permissions", WARN, message, f"chmod 600 {path}"))
    return found


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"
