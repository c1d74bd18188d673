"""Coroutines in tests run in a thread of their own: in that of the tests Playwright's event loop may run."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def run(coroutine: Coroutine[None, None, Result]) -> Result:
    """The result of `asyncio.run`, or its error, whatever runs in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
