"""The examples on the page of the cache are run as they stand there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from aiohttp import web

from primacy import settings
from primacy.cache.configured import machine_settings, source_specs
from primacy.cache.model import Failure, Fetched
from tests.contracts.test_cache_source_http import serve
from tests.support.source_harness import Harness, reason

pytestmark = pytest.mark.beside(order=520)

PAGE = (Path(__file__).parents[2] / "docs/cache.md").read_text()
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "fetch").chmod(0o755)
    return tmp_path


def test_the_sources_on_the_page_do_what_it_says(folder: Path) -> None:
    assert set(FILES) >= {"rates.py", "fetch", "cluster.yaml"}
    cache = settings.load(folder / "cluster.yaml").cache
    assert machine_settings(cache).source_of(b"rate:x").ttl_ms == 60_000  # type: ignore[union-attr]

    async def page(request: web.Request) -> web.Response:
        return web.Response(text=request.path, headers={"Cache-Control": "max-age=9"})

    async def main() -> None:
        runner, url = await serve(page)
        specs = [
            spec._replace(source=str(spec.source).replace("http://127.0.0.1:8000", url)) for spec in source_specs(cache)
        ]
        harness = Harness(*specs, folder=str(folder))
        await harness.calls.open()
        try:
            assert await harness.get(b"rate:EUR") == Fetched(b"1.0842")
            assert await harness.get(b"rate:GBP") == Fetched(b"1.2701", 500)
            assert await harness.get(b"rate:XXX") == Failure("the bank is closed")
            missing = await harness.get(b"rate:YYY")
            assert isinstance(missing, Failure)
            assert missing.missing
            assert await harness.get(b"report:may 2026") == Fetched(b"report of may 2026\n")
            assert await harness.get(b"other") == Failure("nobody writes this report", missing=True)
            assert await harness.get(b"page:a") == Fetched(b"/pages/page:a", 9_000)
            assert reason(await harness.get(b"a\0")).startswith("the key has a zero byte")
        finally:
            await harness.calls.close()
            await runner.cleanup()

    asyncio.run(main())


def test_the_numbers_on_the_page_are_the_programs_own() -> None:
    from primacy.cache.source_process import MISSING_CODE
    from primacy.settings.timing_cache import CACHE_PROFILES

    lan = CACHE_PROFILES["lan"]
    for part in (
        f"every {lan.announce_ms} ms",
        f"the call is cancelled {lan.cancel_at_ms} ms",
        f"gone by {lan.hold_ms} ms",
        f"exit code {MISSING_CODE}",
        f"agree within {lan.skew_max_ms // 1_000} s",
    ):
        assert part in PAGE, part
