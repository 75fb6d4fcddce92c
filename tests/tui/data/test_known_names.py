"""Names that forms offer, and the text after a choice."""

from __future__ import annotations

from tests.tui.recorded import NOW, everything
from tui.data.known_names import ControllerNames, completed, known_names, matching
from tui.data.model import ClusterModel


def model() -> ClusterModel:
    known = ClusterModel(lambda: NOW)
    known.apply(everything())
    return known


def test_names_come_from_the_screen_and_from_the_controller() -> None:
    asked = ControllerNames(("default", "night"), ("empty",), ("maint",))

    def names(kind: str, **typed: str) -> list[str]:
        return known_names(kind, model(), asked, typed)

    assert names("queue") == ["default", "night"]
    assert names("project") == ["empty", "nlp", "speech", "vision"]
    assert names("user") == ["alice", "bob", "chiara", "dmitri", "emeka"]
    assert names("node") == ["node-1", "node-2", "node-3", "node-4"]
    assert names("model") == ["H100"]
    assert names("reservation") == ["maint"]
    assert names("scope") == ["user", "project", "queue"]
    assert names("priority")[:2] == ["critical", "high"]
    assert names("tenant", of="queue") == ["default", "night"]
    assert names("tenant", of="gpu") == []


def test_beginning_of_a_name_counts_more_than_its_middle() -> None:
    assert matching(["nlp", "vlm", "vision"], "v", several=False) == ["vlm", "vision"]
    assert matching(["nlp", "vlm", "vision"], "LM", several=False) == ["vlm"]
    assert matching(["node-1", "node-2"], "node-1 ", several=True) == ["node-1", "node-2"]


def test_choice_replaces_the_last_word_of_a_list_of_names() -> None:
    assert completed("node-1 no", "node-2", several=True) == "node-1 node-2"
    assert completed("vi", "vision", several=False) == "vision"
