"""Container settings of a job: its image and its mounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

if TYPE_CHECKING:
    from wire.job.spec import JobSpec

MAX_MOUNTS = 100
_LONGEST = 4_096


def image_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Validate the image and the mounts of a job. Yield each mistake as (field name, sentence for users)."""
    if len(spec.image) > _LONGEST or spec.image != spec.image.strip() or spec.image.startswith("-"):
        yield "image", "must be the name of an image, such as docker.io/library/python:3.12"
    if spec.mounts and not spec.image:
        yield "mounts", "has no effect without an image: the job already sees all files of the host"
    if len(spec.mounts) > MAX_MOUNTS:
        yield "mounts", f"must be at most {MAX_MOUNTS}"
    for index, text in enumerate(spec.mounts):
        wrong = mount_problem(text)
        if wrong:
            yield f"mounts[{index}]", wrong


def mount_problem(text: str) -> str:
    """Validate a mount such as `/data`, `/data:/mnt` or `/data:/mnt:ro`. Return the mistake as a sentence;
    empty if the mount is valid.
    """
    paths = text[:-3] if text.endswith((":ro", ":rw")) else text
    source, colon, target = paths.partition(":")
    whole = source.startswith("/") and (not colon or target.startswith("/"))
    if not whole or ":" in target or len(text) > _LONGEST or set(text) & set(',"\n'):
        return f"cannot read {text!r}; write /data, /data:/mnt or /data:/mnt:ro"
    return ""


def image_texts(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield each text in `image` and `mounts`, as (field name, text)."""
    yield "image", spec.image
    yield from ((f"mounts[{index}]", text) for index, text in enumerate(spec.mounts))
