"""A link of corral web signs one browser in, once."""

from __future__ import annotations

from tui.web.links import KEPT, SignInLinks


def test_a_link_can_be_used_once() -> None:
    links = SignInLinks()
    token = links.token
    cookie = links.redeem(token)
    assert cookie is not None
    assert links.known(cookie)
    assert links.redeem(token) is None
    assert links.token != token


def test_a_wrong_token_signs_nobody_in_and_keeps_the_link() -> None:
    links = SignInLinks()
    token = links.token
    assert [links.redeem(wrong) for wrong in ("", token[:-1], token + "x", "é")] == [None] * 4
    assert not links.known("")
    assert links.redeem(token) is not None


def test_each_link_gives_another_cookie_and_old_cookies_are_forgotten() -> None:
    links = SignInLinks()
    cookies = [links.redeem(links.token) or "" for _ in range(KEPT + 1)]
    assert len(set(cookies)) == KEPT + 1
    assert [links.known(cookie) for cookie in (cookies[0], cookies[1], cookies[-1])] == [False, True, True]
