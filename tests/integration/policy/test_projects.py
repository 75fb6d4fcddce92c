"""Declared projects in a running system: refusals, default projects, and `corral config apply`."""

from __future__ import annotations

import getpass
from collections.abc import Callable

import tomli_w

from tests.integration.controller.test_reload import corral
from tests.systems import System


def projects(system: System) -> list[str]:
    return [job.project for _, job in sorted(system.jobs().items())]


def test_undeclared_project_is_refused_and_a_default_project_used(build: Callable[..., System]) -> None:
    me = getpass.getuser()
    system = build("gpu01")
    system.sections["projects"] = {
        "vision": {"members": [me], "default_for": [me], "organisation": "lab", "weight": 3.0},
        "speech": {},
    }
    system.start()
    # The caller is the controller's own user, and so an admin: an admin may not invent a project either.
    _, error = corral(system, "submit", "--project", "visoin", "--hold", "--", "true", code=2)
    assert "--project: there is no project 'visoin'" in error
    assert "Did you mean 'vision'? You may use: default, speech, vision." in error
    assert "[projects.NAME] in scheduler.toml" in error
    corral(system, "submit", "--hold", "--", "true")
    corral(system, "submit", "--project", "speech", "--hold", "--", "true")
    corral(system, "job", "set", "2", "--project", "invented", code=2)
    assert projects(system) == ["vision", "speech"]
    with system.client() as client:
        shares = {each.share: each for each in client.shares().shares}
    assert (shares["vision"].path, shares["vision"].weight) == (("lab", "vision"), 3.0)

    system.sections["scheduler"] = {"unknown_projects": "default"}
    system.sections["projects"]["maps"] = {}
    system.config.write_text(tomli_w.dumps(system.sections))
    changes, _ = corral(system, "config", "diff")
    assert "projects.maps" in changes
    assert "scheduler.unknown_projects" in changes
    corral(system, "config", "apply", "--yes")
    out, note = corral(system, "submit", "--project", "invented", "--hold", "--", "true")
    assert (out, "there is no project 'invented': the job is in project 'default'" in note) == ("3\n", True)
    corral(system, "submit", "--project", "maps", "--hold", "--", "true")
    assert projects(system) == ["vision", "speech", "default", "maps"]
    checked, _ = corral(system, "config", "check", str(system.config))
    assert "[projects.vision]" in checked
