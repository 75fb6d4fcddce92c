"""The text format of Prometheus for samples and histograms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from controller.api.metrics.families import Family
from controller.core.pipeline.hooks import Sample
from controller.watchers.counters import Histogram

CONTENT = "text/plain; version=0.0.4; charset=utf-8"


def sample_lines(samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the metric samples as lines of text, grouped by metric. If several samples have the same name and
    labels, only the first one is yielded.
    """
    families: dict[str, dict[str, Sample]] = {}
    for sample in samples:
        families.setdefault(sample.name, {}).setdefault(_labels(sample.labels), sample)
    for name, family in families.items():
        first = next(iter(family.values()))
        yield from _head(name, first.about, first.kind)
        for labels, sample in family.items():
            yield f"{name}{labels} {_number(sample.value)}"


def histogram_lines(family: Family, histograms: Mapping[tuple[str, ...], Histogram]) -> Iterator[str]:
    """Yield the lines of a histogram metric. The keys of `histograms` are the values of the labels."""
    yield from _head(family.name, family.about, "histogram")
    for values, histogram in sorted(histograms.items()):
        labels = dict(zip(family.labels, values, strict=True))
        below = 0
        bounds = (*map(_number, histogram.bounds), "+Inf")
        for bound, count in zip(bounds, histogram.counts, strict=True):
            below += count
            yield f"{family.name}_bucket{_labels({**labels, 'le': bound})} {below}"
        yield f"{family.name}_sum{_labels(labels)} {_number(histogram.total_s)}"
        yield f"{family.name}_count{_labels(labels)} {below}"


def _head(name: str, about: str, kind: str) -> Iterator[str]:
    if about:
        yield f"# HELP {name} {_escaped(about)}"
    yield f"# TYPE {name} {kind}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    quoted = (
        f'{key}="{_escaped(str(value)).replace(chr(34), chr(92) + chr(34))}"' for key, value in labels.items()
    )
    return f"{{{','.join(quoted)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
