"""Make the pictures of the explorer in docs/pictures, and its film.

Run it with `python docs/explorer.py`.

Needs the extras `explorer` and `dev`, and a Chromium. The film follows the second scene of the tour, and has
the heat button of A held down for a while.
"""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import heatbath as hb

PICTURES = Path(__file__).parent / "pictures"
SYSTEM = "/usr/bin/chromium"
SCENE, OTHER = 1, 5  # places in the tour
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 400, "height": 850}
FILM = (640, 400)  # pixels
FROM, UP_TO, GROWTH = 1000, 60_000, 1.18  # steps, and from frame to frame of the film
SLOW, FAST, ALL, LEARNS = (
    "6",
    "7",
    "9",
    12_000,
)  # places of the slider for the speed, and the step of the change
HELD, AFTER = 6, 14  # frames while the button is held, and afterwards
BETWEEN = 160  # ms from frame to frame


def reach(page: Any, steps: int) -> None:
    """Wait until A has made so many steps."""
    end = time.monotonic() + 300
    while page.evaluate("async () => (await import('./page/state.js')).state.steps.A") < steps:
        if time.monotonic() > end:
            raise TimeoutError(f"{steps} steps were not made in 300 s")
        page.wait_for_timeout(20)


def opened(browser: Any, url: str, scheme: str, size: dict[str, int], scene: int, scale: float = 1.5) -> Any:
    """Open a page that plays a scene."""
    context = browser.new_context(viewport=size, color_scheme=scheme, device_scale_factor=scale)
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("#run-A .coefficient")
    page.click("#open-tour")
    page.locator("#scenes button").nth(scene).click()
    page.wait_for_selector("html.playing")
    if scene == SCENE:
        page.click("#tour-close")
    return page


def picture(page: Any, name: str) -> None:
    """Save the page as a PNG, once its numbers, renewed four times a second, are those of the map."""
    page.mouse.move(2, 2)
    page.wait_for_timeout(1500)
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(PICTURES / name, optimize=True)


def film(page: Any) -> None:
    """Frames at steps that grow by a factor, then some with the heat on, and after it."""
    frames: list[Image.Image] = []

    def shoot() -> None:
        frames.append(
            Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize(FILM, Image.Resampling.LANCZOS)
        )

    step = float(FROM)
    while step < UP_TO:
        page.fill("#speed", SLOW if step < LEARNS else FAST)
        reach(page, int(step))
        shoot()
        step *= GROWTH
    page.locator("#run-A .heat").hover()
    page.mouse.down()
    for _ in range(HELD):
        page.wait_for_timeout(BETWEEN)
        shoot()
    page.mouse.up()
    page.fill("#speed", ALL)
    for _ in range(AFTER):
        page.wait_for_timeout(2 * BETWEEN)
        shoot()
    durations = [BETWEEN] * (len(frames) - 1) + [2000]
    frames[0].save(
        PICTURES / "explorer.webp", save_all=True, append_images=frames[1:], duration=durations, loop=0,
        quality=50, method=4,
    )  # fmt: skip


def main() -> None:
    """All of them."""
    with hb.explore(browser=False) as served, sync_playwright() as driver:
        path = SYSTEM if os.path.exists(SYSTEM) else None
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = opened(browser, served.url, "light", WIDE, SCENE, scale=1)
        film(page)
        page.context.close()
        page = opened(browser, served.url, "light", WIDE, SCENE)
        reach(page, UP_TO)
        picture(page, "explorer.png")
        page.context.close()
        page = opened(browser, served.url, "dark", WIDE, OTHER)
        reach(page, 20_000)
        picture(page, "explorer-doubt.png")
        page.context.close()
        page = opened(browser, served.url, "light", NARROW, SCENE)
        reach(page, UP_TO)
        picture(page, "explorer-narrow.png")
        browser.close()


if __name__ == "__main__":
    main()
