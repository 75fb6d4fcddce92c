"""Changes the user of a process to the user of a job.

The fork server must stay small and imports this module, so this module imports only small modules.
"""

from __future__ import annotations

import os

from agent.attempts.launch.launch_spec import LaunchSpec


def become_user(launch: LaunchSpec) -> None:
    """Change the user of this process to the job's user. This cannot be undone. Raise OSError if the kernel
    refuses.
    """
    if launch.user is not None:
        uid, gid, groups = launch.user
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
