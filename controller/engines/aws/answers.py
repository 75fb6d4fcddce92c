"""Reads HTTP answers of AWS: bodies of a bounded length, and XML without entities."""

from __future__ import annotations

from xml.etree.ElementTree import Element, ParseError, XMLParser

import aiohttp

from controller.engines.contract import EngineUnavailable


async def read_body(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the body of an answer. Raise EngineUnavailable if it has more than `most` bytes."""
    text = bytearray()
    async for piece in answer.content.iter_any():
        text += piece
        if len(text) > most:
            raise EngineUnavailable(f"{answer.url.host} has sent an answer of more than {most} bytes")
    return bytes(text)


def parsed_xml(text: bytes) -> Element | None:
    """Return the root element, with the namespaces removed from all tags. Return None if the text is not XML,
    or has a DTD, because the entities of a DTD can grow without limit.
    """
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        return None
    parser = XMLParser()  # noqa: S314 - documents with entities are refused above
    try:
        parser.feed(text)
        root: Element = parser.close()
    except ParseError:
        return None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def text_of(element: Element, path: str) -> str:
    """Return the text of the element at a path; empty if there is none."""
    found = element.find(path)
    return "" if found is None or found.text is None else found.text.strip()
