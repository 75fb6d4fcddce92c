"""A controller as the store sees it: commits a seeded history, acknowledging each commit on stdout."""

from __future__ import annotations

import itertools
import sys

from controller.store.failures import StoreFailure
from controller.store.store import Store
from tests.controller.store.samples import history

ENOUGH = 2_000


def main(url: str, seed: int) -> None:
    """Say `open`, then the number of each commit once it is durable, or why it is not."""
    store = Store.open(url)
    print("open", flush=True)
    for number, batch in enumerate(itertools.islice(history(seed), ENOUGH), 1):
        try:
            store.commit(batch)
        except StoreFailure as failure:
            print(f"{type(failure).__name__}: {failure.message}", flush=True)
        else:
            print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
