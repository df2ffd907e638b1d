"""The explorer's page, driven in a real Chromium against the real server."""

import base64
import json
import re
import threading
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

import heatbath as hb
from heatbath.explorer import LOOPBACK, Served
from heatbath.explorer import server as explorer_server
from heatbath.explorer.run_stream import RunStream
from tests.browsers import accessibility_violations, start_browser
from tests.explorer.pages import connected
from tests.patience import PATIENCE, wait_until

pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright (extra dev)")

LONG = 1000 * PATIENCE  # ms, as playwright counts
ENDS = "() => [...document.querySelectorAll('.gauges')].map((e) => e.getBoundingClientRect().bottom)"
STATE = "async () => JSON.parse(JSON.stringify((await import('./page/state.js')).state))"


VIEWPORT = {"width": 1280, "height": 800}
MEDIA = {"color_scheme": "light", "reduced_motion": "no-preference"}


class Windows:
    """The windows of a browser: one is lent again and again, since each new one starts a process."""

    def __init__(self, browser):
        self._browser = browser
        self._idle = []

    def open(self, **options):
        """Return an empty page in a window of its own; closing its context closes the window."""
        context = self._browser.new_context(**options)
        context.set_default_timeout(LONG)
        return context.new_page()

    @contextmanager
    def own(self, viewport=VIEWPORT, **options):
        """Yield a new window, and close it."""
        page = self.open(viewport=viewport, **options)
        try:
            yield page
        finally:
            page.context.close()  # also after a failure: the server has room for so many only

    @contextmanager
    def lend(self, viewport=VIEWPORT, **media):
        """Yield a window without a trace of its last use, and keep it unless there is a failure."""
        page = self._idle.pop() if self._idle else self.open()
        try:
            page.set_viewport_size(viewport)
            page.emulate_media(**{**MEDIA, **media})
            yield page
            page.evaluate("localStorage.clear()")
            page.mouse.move(0, 0)
            page.goto("about:blank")
        except BaseException:
            page.context.close()
            raise
        self._idle.append(page)


@pytest.fixture(scope="module")
def browser():
    with start_browser() as made:
        yield Windows(made)


@pytest.fixture(scope="module")
def server():
    with hb.explore(browser=False) as served:
        yield served


class Watch:
    """A record of what a page must not do: errors, warnings, requests to other servers."""

    def __init__(self, page, url):
        self.seen = []
        self._page = page
        self._handlers = {
            "console": lambda m: m.type in ("error", "warning") and self.seen.append(m.text),
            "pageerror": lambda error: self.seen.append(str(error)),
            "request": lambda r: r.url.startswith((url, "blob:", "data:")) or self.seen.append(r.url),
            "websocket": lambda s: s.url.startswith(url.replace("http", "ws")) or self.seen.append(s.url),
        }
        for event, handler in self._handlers.items():
            page.on(event, handler)

    def stop(self):
        """Record nothing any more."""
        for event, handler in self._handlers.items():
            self._page.remove_listener(event, handler)


@contextmanager
def open_page(browser, server, settings=None, own=False, **options):
    """Yield the explorer's page, and check that it does nothing it must not.

    Its window is its `own`, or one that has been used before.
    """
    with (browser.own if own else browser.lend)(**options) as page:
        watch = Watch(page, server.url)
        page.goto(server.url + ("" if settings is None else "#" + encoded(settings)))
        wait_until_on_page(page, "() => document.querySelector('#run-A .coefficient') !== null")
        wait_until_on_page(
            page, "() => document.querySelector('#run-A .test').textContent !== '–'"
        )  # the first frame
        yield page
        watch.stop()
        assert watch.seen == []


@pytest.fixture
def page(browser, server):
    with open_page(browser, server, small_settings()) as page:
        yield page


def wait_until_on_page(page, condition, arg=None):
    """Wait until a JavaScript function returns true on the page.

    Playwright's own waiting needs `eval`, which the page's policy forbids.
    """
    wait_until_true(page, lambda: page.evaluate(condition, arg), condition)


def wait_until_true(page, condition, what):
    """Wait until `condition()` is true, while the page's events are heard."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true"
        page.wait_for_timeout(30)


def wait_until_state(page, what, arg=None):
    """Wait until a JavaScript condition on the page's `state` is true."""
    wait_until_on_page(
        page, f"async (arg) => {{ const {{ state }} = await import('./page/state.js'); return {what} }}", arg
    )


def encoded(settings):
    """Return settings as they stand in a link."""
    return base64.urlsafe_b64encode(json.dumps(settings).encode()).decode().rstrip("=")


def small_settings(**changes):
    """Return the settings of small networks on an easy problem."""
    return {
        "problem": {"kind": "spirals", "turns": 1, "noise": 0.02, "p": 0.5, "points": 200, "seed": 0},
        "network": {"hidden": [20], "activation": "relu", "init": "torch", "scale": 0.01},
        "batch": 20,
        "chains": 2,
        "seed": 0,
        "runs": {"A": {"method": "AdLaLa"}, "B": {"method": "Adam"}},
        "view": {"map": "mean"},
        **changes,
    }


def play_slowly(page):
    """Slow the runs down to three steps a second, where the processor has other work to do."""
    page.fill("#speed", "1")
    wait_until_on_page(page, "() => document.getElementById('speed-text').textContent === '3/s'")


def state(page):
    return page.evaluate(STATE)


def steps(page):
    return state(page)["steps"]


def wait_for_step(page, step):
    """Wait until both runs have made a number of steps."""
    wait_until_state(page, "Object.values(state.steps).every((s) => s >= arg)", step)


def pause(page):
    page.click("#play")
    wait_until_on_page(page, "() => !document.documentElement.classList.contains('playing')")


def settled_steps(page, server, folder):
    """Return the steps of paused runs once the work under way has ended, so they can be downloaded."""
    made = {}
    for run in "AB":
        answer = page.request.get(f"{server.url}run/{state(page)['hello']['session']}/{run}.nc", timeout=LONG)
        (folder / f"{run}.nc").write_bytes(answer.body())
        made[run] = hb.load(folder / f"{run}.nc").step
    wait_until_state(page, "['A', 'B'].every((name) => state.steps[name] === arg[name])", made)
    return made


def field_selector(run, part, name):
    """Return the CSS selector of a coefficient's field."""
    group = f"#run-{run} " + (f".part[aria-label^='{part} ']" if part else ".controls >")
    return f"{group} .coefficient[data-name={name}]"


def type_number(page, run, part, name, text):
    """Type a number into a field, and wait until the run uses it."""
    page.fill(f"{field_selector(run, part, name)} .number", text)
    page.keyboard.press("Enter")
    where = "h" if part is None else f"parts.{part}.{name}"
    wait_until_state(page, f"state.now.{run}.{where} === arg", float(text))


def accuracy(page, run="A"):
    return float(page.inner_text(f"#run-{run} .test").rstrip(" %"))


def shared_code(page, run, kind="python"):
    """Return the code in the dialog "Share", which stays open."""
    if not page.is_visible("#share-dialog"):
        page.click("#open-share")
    page.check(f"[name=code-run][value={run}]", force=True)
    page.evaluate("document.getElementById('share-code').value = ''")
    page.check(f"[name=code-as][value={'command' if kind == 'python' else 'python'}]", force=True)
    page.check(f"[name=code-as][value={kind}]", force=True)
    sign = "run = hb.train" if kind == "python" else "heatbath train"
    wait_until_on_page(page, "(sign) => document.getElementById('share-code').value.includes(sign)", sign)
    return page.input_value("#share-code")


def download(page, selector, folder):
    with page.expect_download() as caught:
        page.click(selector)
    path = folder / caught.value.suggested_filename
    caught.value.save_as(path)
    return path


def test_the_page_loads_without_errors_and_without_asking_another_host(browser, server):
    with open_page(browser, server) as page:
        assert page.title() == "heatbath explorer"
        assert [page.inner_text(f"#run-{run} .badge") for run in "AB"] == ["A", "B"]
        assert page.is_enabled("#play")
        assert steps(page) == {"A": 0, "B": 0}


def test_the_page_fixture_notices_errors_and_requests_to_other_hosts(browser, server):
    page = browser.open(bypass_csp=True)  # whose policy would not let it ask
    watch = Watch(page, server.url)
    page.route("http://elsewhere.invalid/*", lambda route: route.abort())
    page.goto(server.url)
    page.evaluate("console.error('a'); setTimeout(() => { throw new Error('b') })")
    page.evaluate("fetch('http://elsewhere.invalid/c').catch(() => 0)")
    wait_until_true(
        page, lambda: {"b", "http://elsewhere.invalid/c"} <= set(watch.seen), "that both are seen"
    )
    page.context.close()
    assert watch.seen[0] == "a"


def test_the_policy_lets_the_page_open_websockets_to_its_own_server_only(browser, server):
    with browser.lend() as page:
        page.goto(server.url)
        refused = page.evaluate(
            """async () => { const seen = [];
        document.addEventListener("securitypolicyviolation", (event) => seen.push(event.blockedURI));
        let last;
        for (const url of ["ws://127.0.0.1:9/", "wss://elsewhere.invalid/", new URL("socket", location).href])
          try { last = new WebSocket(url.replace("http:", "ws:")) } catch { /* as some browsers do */ }
        await new Promise((done) => { last.onopen = done; last.onerror = done });
        while (seen.length < 2) await new Promise((done) => setTimeout(done, 10));
        return seen }"""
        )
    assert [url.rstrip("/") for url in refused] == ["ws://127.0.0.1:9", "wss://elsewhere.invalid"]


def test_training_starts_and_accuracy_rises(page):
    first = accuracy(page)
    page.click("#play")
    wait_until_on_page(page, "() => parseFloat(document.querySelector('#run-A .test').textContent) > 90")
    assert first < 75
    assert page.inner_text("#play-text") == "Pause"


def test_a_slider_moved_during_a_run_changes_the_trajectory_without_a_restart(browser, server):
    same = {"method": "AdLaLa", "h": 0.1}
    with open_page(browser, server, small_settings(runs={"A": same, "B": same})) as page:
        page.click("#play")
        wait_for_step(page, 300)
        slider = page.locator(f"{field_selector('A', 'hidden', 'tau')} input[type=range]")
        slider.focus()
        for _ in range(12):
            slider.press("ArrowRight")
        wait_until_state(page, "state.now.A.parts.hidden.tau > 1.5e-4")
        changed = state(page)["settings"]["runs"]["A"]["history"]
        wait_for_step(page, 3 * changed[-1][0] + 1000)
        pause(page)
        ends = "Object.values(state.traces).every((trace) => trace.step.at(-1) >= arg)"
        wait_until_state(page, ends, 3 * changed[-1][0] + 1000)
        found = state(page)
    assert changed[0][0] >= 300
    assert "history" not in found["settings"]["runs"]["B"] or not found["settings"]["runs"]["B"]["history"]
    a, b = (dict(zip(t["step"], t["loss"]["train"], strict=True)) for t in found["traces"].values())
    common = sorted(set(a) & set(b))
    before = [step for step in common if step <= changed[0][0]]
    after = [step for step in common if step > changed[-1][0]]
    assert len(before) > 20
    assert [a[step] for step in before] == [b[step] for step in before]
    assert len(after) > 2
    assert all(a[step] != b[step] for step in after)


def test_pause_stops_and_step_makes_one_step_of_each_run(page, server, tmp_path):
    page.click("#play")
    wait_for_step(page, 100)
    pause(page)
    first = settled_steps(page, server, tmp_path)
    page.wait_for_timeout(200)
    assert steps(page) == first
    wait_until_on_page(
        page, "() => document.querySelector('#run-A canvas.values').width === 160"
    )  # sharper than moving ones
    page.click("#step")
    assert settled_steps(page, server, tmp_path) == {run: step + 1 for run, step in first.items()}
    page.locator("#benches").focus()
    page.keyboard.press("s")
    assert settled_steps(page, server, tmp_path) == {run: step + 2 for run, step in first.items()}
    page.keyboard.press("r")
    wait_until_on_page(page, "() => document.getElementById('steps').textContent === '0'")
    page.keyboard.press("Space")
    wait_for_step(page, 50)


def test_runs_keep_to_the_chosen_speed(page):
    page.fill("#speed", "2")  # ten a second
    assert page.inner_text("#speed-text") == "10/s"
    begin = time.monotonic()
    page.click("#play")
    wait_for_step(page, 10)
    page.wait_for_timeout(200)  # in which thousands would be made
    made = max(steps(page).values())
    assert made <= 10 * (time.monotonic() - begin) + 1  # on a slow machine they are fewer


def test_another_method_replaces_all_controls(page):
    count = "async () => (await import('./page/colours.js')).theme.listeners.size"
    first = page.evaluate(count)
    for method in ("LaLa", "SGLD", "AdLaLa"):
        page.select_option("#run-A .method select", method)
        wait_until_state(page, "state.now.A.method === arg", method)
    assert page.evaluate(count) == first


def test_an_invalid_word_is_refused_with_a_message_and_training_continues(page):
    page.click("#play")
    word = page.locator("#run-A .part-head input").first
    word.fill("BAXB")
    error = page.locator("#run-A .word .error").first
    error.wait_for(state="visible")
    word.press("Enter")
    assert "'X' is not a letter" in error.inner_text()
    assert word.get_attribute("aria-invalid") == "true"
    wait_for_step(page, steps(page)["A"] + 500)
    assert state(page)["now"]["A"]["parts"]["hidden"]["word"] == "BACDEDCAB"
    word.press("Escape")
    error.wait_for(state="hidden")
    assert word.input_value() == "BACDEDCAB"


def test_a_valid_word_applies_at_once_and_its_tiles_are_as_wide_as_their_fraction_of_h(page):
    page.click("#play")
    wait_for_step(page, 50)
    word = page.locator("#run-A .part-head input").first
    word.fill("bafefab")
    word.press("Enter")
    wait_until_state(page, "state.now.A.parts.hidden.word === 'BAFEFAB'")
    tiles = page.locator("#run-A .tiles").first.locator(".tile")
    assert "".join(tiles.all_inner_texts()) == "BAFEFAB"
    widths = [tile.bounding_box()["width"] for tile in tiles.all()]
    assert widths[3] == pytest.approx(2 * widths[0], abs=1.5)  # E acts for h, B for h/2
    assert steps(page)["A"] >= 50


def test_invalid_numbers_are_reported_at_their_field(page):
    number = page.locator(f"{field_selector('A', None, 'h')} .number")
    error = page.locator(f"{field_selector('A', None, 'h')} .error")
    number.fill("fast")
    number.press("Enter")
    assert "is no number" in error.inner_text()
    number.fill("-1")
    number.press("Enter")
    wait_until_on_page(page, "(e) => e.textContent.includes('> 0')", arg=error.element_handle())
    number.fill("0.2")
    number.press("Enter")
    error.wait_for(state="hidden")
    assert state(page)["now"]["A"]["h"] == 0.2


def test_each_scene_of_the_tour_loads_and_plays(browser, server):
    with open_page(browser, server) as page:
        page.click("#open-tour")
        scenes = page.locator("#scenes button")
        assert scenes.count() == len(state(page)["hello"]["scenes"])
        for place in range(scenes.count()):
            scenes.nth(place).click()
            title = state(page)["hello"]["scenes"][place]["title"]
            assert page.inner_text("#scene-title") == title
            wanted = state(page)["hello"]["scenes"][place]["settings"]
            methods = {run: wanted["runs"][run]["method"] for run in "AB"}
            wait_until_state(
                page, "state.steps.A > 0 && ['A', 'B'].every((n) => state.now[n].method === arg[n])", methods
            )
            assert page.is_hidden("#message")
            assert max(page.evaluate(ENDS)) < 790  # with some paper below


HELD = """
const [ask, cancel, waiting] = [requestAnimationFrame, cancelAnimationFrame, new Map()];
window.hold = false;
window.requestAnimationFrame = (f) => (hold ? (waiting.set(-1 - waiting.size, f), -waiting.size) : ask(f));
window.cancelAnimationFrame = (id) => waiting.delete(id) || cancel(id);
window.frames_held = () => [...waiting.values()].filter((f) => String(f).includes('handlers.frame')).length;
window.release = () => {
  hold = false;
  for (const f of waiting.values()) f(performance.now());
  waiting.clear();
};
"""


def test_maps_and_numbers_of_new_runs_appear_only_with_their_first_frame(browser, server, monkeypatch):
    """The new runs may have to be compiled first.

    A frame of the old runs that was not painted yet must not appear either.
    """
    prepare, on = RunStream.prepare, threading.Event()

    def wait(stream):
        if not stream.prepared:
            on.wait(PATIENCE)
        prepare(stream)

    def is_empty():
        colour, shades, numbers = page.evaluate(
            """() => {
            const canvas = document.querySelector('#run-A canvas.values');
            const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            const style = getComputedStyle(document.querySelector('#run-A .bench')).backgroundColor;
            const shades = new Set(new Uint32Array(data.buffer)).size;
            return [`rgb(${data.slice(0, 3).join(', ')})` === style, shades,
              [...document.querySelectorAll('.scores dd')].map((e) => e.textContent)];
            }"""
        )
        return colour and shades == 1 and set(numbers) == {"–"}

    monkeypatch.setattr(RunStream, "prepare", wait)
    page = browser.open()
    try:
        page.add_init_script(HELD)
        page.goto(server.url + "#" + encoded(small_settings()))
        wait_until_on_page(page, "() => document.querySelector('#run-A .coefficient') !== null")
        assert is_empty()
        on.set()
        page.click("#play")
        wait_for_step(page, 50)
        assert not is_empty()
        on.clear()
        page.evaluate("() => { hold = true }")
        wait_until_on_page(page, "() => frames_held() === 1")
        page.click("#reset", force=True)  # which waits for no frame
        wait_until_on_page(page, "() => document.querySelector('#run-A .test').textContent === '–'")
        page.evaluate("() => release()")
        assert is_empty()
        on.set()
        wait_until_true(page, lambda: not is_empty(), "a map of the new runs")
    finally:
        on.set()
        page.context.close()


def test_a_link_restores_a_view_with_the_changes_made_during_the_run(browser, server):
    with open_page(browser, server, small_settings()) as page:
        page.check("input[name=map][value=sd]", force=True)
        page.check("#units", force=True)
        page.fill("#speed", "8")
        page.click("#play")
        wait_for_step(page, 200)
        type_number(page, "A", "output", "gamma", "7")
        wait_for_step(page, 1000)
        pause(page)
        page.click("#open-share")
        link = page.input_value("#share-link")
        sent = state(page)["settings"]
    assert link.startswith(server.url + "#")
    with open_page(browser, server, json.loads(base64.urlsafe_b64decode(link.split("#")[1] + "==="))) as page:
        found = state(page)
        assert page.is_checked("input[name=map][value=sd]")
        assert page.is_checked("#units")
        wait_until_on_page(page, "() => document.getElementById('speed-text').textContent === '10k/s'")
        sent["view"] = found["settings"]["view"]
        assert found["settings"] == sent
        assert found["now"]["A"]["parts"]["output"]["gamma"] != 7
        page.click("#play")
        wait_until_state(page, "state.now.A.parts.output.gamma === 7")
        assert len(state(page)["settings"]["runs"]["A"]["history"]) == len(sent["runs"]["A"]["history"])


def test_the_chosen_view_and_speed_stay_after_a_reset_and_with_another_problem(page):
    page.check("input[name=map][value=sd]", force=True)
    page.fill("#speed", "2")
    for begin in ("#reset", "#problem-apply"):
        if begin == "#problem-apply":
            page.click("#open-problem")
        page.evaluate("async () => { (await import('./page/state.js')).state.ready = null }")
        page.click(begin)
        wait_until_state(page, "state.ready !== null")
        assert page.is_checked("input[name=map][value=sd]")
        assert page.inner_text("#speed-text") == "10/s"


def test_a_change_made_before_those_of_a_link_precedes_them(browser, server):
    later = [10**6, {"h": 0.3}]
    runs = {"A": {"method": "AdLaLa", "history": [later]}, "B": {"method": "Adam"}}
    with open_page(browser, server, small_settings(runs=runs)) as page:
        page.click("#step")
        wait_for_step(page, 1)
        type_number(page, "A", None, "h", "0.11")
        type_number(page, "A", None, "h", "0.12")
        assert state(page)["settings"]["runs"]["A"]["history"] == [[1, {"h": 0.12}], later]


def test_heat_ends_when_its_button_is_released_or_the_runs_end(page):
    hot = "() => document.getElementById('run-A').classList.contains('heated')"
    for end in ("method", "reset", "elsewhere"):
        page.locator("#run-A .heat").hover()
        page.mouse.down()
        wait_until_on_page(page, hot)
        wait_until_state(page, "state.now.A.heat === 10")
        if end == "method":  # which builds other controls
            page.select_option("#run-A .method select", "LaLa")
        elif end == "reset":
            page.evaluate("document.getElementById('reset').click()")
        else:  # no button hears of it
            page.evaluate("window.dispatchEvent(new PointerEvent('pointerup'))")
        wait_until_state(page, "state.now.A.heat === 1")
        wait_until_on_page(page, f"() => !({hot})()")
        page.mouse.up()


def test_a_damaged_link_shows_a_message_and_loads_the_default_settings(browser, server):
    with browser.lend() as page:
        page.goto(server.url + "#" + 5 * "damaged")
        page.wait_for_selector("#message:has-text('damaged')")
        page.wait_for_selector("#run-A .coefficient")


def test_a_link_with_an_invalid_view_shows_a_message_and_loads_the_default_settings(browser, server):
    with browser.lend() as page:
        page.goto(server.url + "#" + encoded(small_settings(view={"map": "sd", "x": 5000 * "y"})))
        page.wait_for_selector("#message:has-text('4000 characters')")
        page.wait_for_selector("#run-A .coefficient")
        assert page.is_checked("input[name=map][value=mean]")


def test_a_word_that_is_undone_at_once_is_a_phase_in_the_link(page):
    page.click("#step")
    wait_for_step(page, 1)
    word = page.locator("#run-A .part-head input").first
    for text in ("BAFEFAB", "BACDEDCAB"):
        word.fill(text)
        word.press("Enter")
        wait_until_state(page, "state.now.A.parts.hidden.word === arg", text)
    type_number(page, "A", None, "h", "0.11")
    type_number(page, "A", None, "h", "0.12")
    history = state(page)["settings"]["runs"]["A"]["history"]
    made = [change["parts"]["hidden"]["word"] for _, change in history]
    assert made == ["BAFEFAB", "BACDEDCAB"]
    assert history[-1][1]["h"] == 0.12


def test_another_problem_begins_with_the_present_values(page):
    page.click("#step")
    wait_for_step(page, 1)
    type_number(page, "A", "hidden", "tau", "0.0005")
    page.select_option("#run-B .method select", "LaLa")
    wait_until_state(page, "state.now.B.method === 'LaLa'")
    page.check("#run-A .anneal", force=True)
    wait_until_state(page, "state.now.A.anneal?.from === 1")
    page.click("#open-problem")
    page.fill("#problem-fields [name=points]", "100")
    page.click("#problem-apply")
    page.locator("#problem-dialog").wait_for(state="hidden")
    runs = state(page)["settings"]["runs"]
    assert runs["A"]["parts"]["hidden"]["tau"] == 0.0005
    assert runs["A"]["anneal"]["from"] == 0
    assert runs["B"]["method"] == "LaLa"
    assert not any(run.get("history") for run in runs.values())


def test_every_method_with_a_temperature_can_be_heated(page):
    for method, bath in (("SGLD", 1), ("Adam", 0), ("LaLa", 1)):
        page.select_option("#run-A .method select", method)
        wait_until_state(page, "state.now.A.method === arg", method)
        assert page.locator("#run-A .heat").count() == bath


def test_drawn_points_train(page):
    page.click("#open-problem")
    page.check("[name=kind][value=points]", force=True)
    box = page.locator("#draw-canvas").bounding_box()
    for label, x in (("0", 0.25), ("1", 0.75)):
        page.check(f"[name=draw-class][value='{label}']", force=True)
        page.mouse.move(box["x"] + x * box["width"], box["y"] + 0.1 * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + x * box["width"], box["y"] + 0.9 * box["height"], steps=8)
        page.mouse.up()
    page.fill("#set-batch", "10")
    page.click("#problem-apply")
    page.locator("#problem-dialog").wait_for(state="hidden")
    drawn = state(page)["settings"]["problem"]
    assert drawn["kind"] == "points"
    assert {point[2] for point in drawn["points"]} == {0, 1}
    page.click("#play")
    wait_until_on_page(page, "() => parseFloat(document.querySelector('#run-A .test').textContent) > 95")


def drop(page, name, text):
    """Drop a file onto the page."""
    page.evaluate(
        """([name, text]) => { const data = new DataTransfer(); data.items.add(new File([text], name));
        const how = {dataTransfer: data, bubbles: true, cancelable: true};
        document.body.dispatchEvent(new DragEvent("drop", how)) }""",
        [name, text],
    )
    page.wait_for_selector(f"#drop-text:has-text('{name}')")


def test_a_table_dropped_onto_the_page_trains(page):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    rows = [f"{a:.3f},{b:.3f},{'up' if b > 0 else 'down'}" for a, b in x]
    drop(page, "mine.csv", "a,b,side\n" + "\n".join(rows) + "\n")
    page.click("#problem-apply")
    page.locator("#problem-dialog").wait_for(state="hidden")
    assert sorted(state(page)["ready"]["targets"]) == ["down", "up"]
    page.click("#play")
    wait_for_step(page, 100)
    drop(page, "quotes.csv", '"' * 880_000)  # twice as long when it is sent
    page.click("#problem-apply")
    page.wait_for_selector("#problem-error:has-text('accepted are up to')")
    wait_for_step(page, steps(page)["A"] + 100)


def test_a_network_that_is_too_large_is_refused_at_its_field_and_nothing_changes(page):
    page.click("#play")
    page.click("#open-problem")
    page.fill("#net-hidden", "5000")
    page.click("#problem-apply")
    page.wait_for_selector("#problem-error:has-text('5000')")
    assert page.get_attribute("#net-hidden", "aria-invalid") == "true"
    page.keyboard.press("Escape")
    wait_for_step(page, steps(page)["A"] + 100)
    assert state(page)["settings"]["network"]["hidden"] == [20]


def test_copied_python_reproduces_the_downloaded_run_which_can_be_resumed(page, tmp_path):
    page.click("#play")
    wait_for_step(page, 100)
    type_number(page, "A", "hidden", "tau", "0.0005")
    page.locator("#run-A .heat").hover()
    page.mouse.down()
    wait_until_state(page, "state.now.A.heat === 10")
    page.mouse.up()
    wait_until_state(page, "state.now.A.heat === 1")
    type_number(page, "A", None, "h", "0.11")
    wait_for_step(page, steps(page)["A"] + 100)
    pause(page)
    for run in "AB":
        text = shared_code(page, run)
        downloaded = hb.load(download(page, f"#save-{run}", tmp_path))
        namespace = {}
        exec(compile(text, "copied", "exec"), namespace)
        np.testing.assert_array_equal(namespace["run"].theta, downloaded.theta)
        if run == "A":
            assert "0.0005" in text
            on = downloaded.resume(steps=50)
            assert on.plan.steps == downloaded.plan.steps + 50
            assert np.isfinite(on.theta).all()
            assert not np.array_equal(on.theta, downloaded.theta)


def test_the_run_is_also_offered_as_a_command(page):
    assert shared_code(page, "B", "command").startswith("heatbath train ")


def test_picture_and_film_can_be_downloaded(page, tmp_path):
    page.fill("#speed", "4")  # a film takes its time, however fast the runs are
    page.click("#play")
    page.click("#open-share")
    assert download(page, "#save-picture", tmp_path).read_bytes()[1:4] == b"PNG"
    page.evaluate("() => { const set = setInterval; window.setInterval = (f, ms) => set(f, ms / 5) }")
    assert download(page, "#save-film", tmp_path).read_bytes()[:4] == b"\x1aE\xdf\xa3"  # of WebM


def test_a_diverged_run_names_its_part_and_can_go_back_to_a_good_state(browser, server):
    with open_page(browser, server, small_settings()) as page:
        page.click("#play")
        wait_for_step(page, 300)
        type_number(page, "A", None, "h", "100000")
        note = page.locator("#run-A .note.diverged")
        note.wait_for(state="visible")
        assert re.match(r"Run A: (hidden|output) diverged at step [\d,]+", note.inner_text())
        reach_b = steps(page)["B"] + 500
        wait_until_state(page, "state.steps.B >= arg", reach_b)  # the other goes on
        pause(page)
        note.locator("button").click()
        note.wait_for(state="hidden")
        type_number(page, "A", None, "h", "0.1")
        page.click("#play")
        before = steps(page)["A"]
        wait_until_state(page, "state.steps.A > arg + 100", before)


def test_two_windows_are_independent_and_a_closed_one_ends_its_work(browser, server, monkeypatch):
    assert explorer_server.RETURN_SECONDS <= 2  # seconds, after which nothing of a page is left
    monkeypatch.setattr(explorer_server, "RETURN_SECONDS", 0.1)
    with open_page(browser, server, small_settings()) as one:
        with open_page(browser, server, small_settings()) as two:
            keys = [state(p)["hello"]["session"] for p in (one, two)]
            assert keys[0] != keys[1]
            two.click("#play")
            wait_for_step(two, 200)
            assert steps(one) == {"A": 0, "B": 0}
            assert one.request.get(f"{server.url}run/{keys[1]}/A.nc").status == 200
        assert wait_until(lambda: one.request.get(f"{server.url}run/{keys[1]}/A.nc").status == 404)
        assert one.request.get(f"{server.url}run/{keys[0]}/A.nc").status == 200


def test_a_page_with_a_token_works_and_one_without_is_refused(browser, tmp_path):
    with Served(LOOPBACK, 0, "a token+") as served, browser.lend() as page:
        address = f"http://{LOOPBACK}:{served.port}/"
        assert page.goto(address).status == 403
        page.goto(address + "?token=a%20token%2B#" + encoded(small_settings()))
        page.click("#play")
        wait_for_step(page, 10)
        page.click("#open-share")
        assert "token" not in page.input_value("#share-link")  # which lets everyone in
        assert page.is_visible("#share-token")
        assert hb.load(download(page, "#save-A", tmp_path)).theta.size


def test_a_page_that_loses_its_connection_returns_to_its_runs(browser, patient_server):
    page = browser.open()
    routes = []

    def between(route):
        routes.append((route, route.connect_to_server()))

    page.route_web_socket(re.compile("/socket"), between)
    page.goto(patient_server.url + "#" + encoded(small_settings()))
    page.wait_for_selector("#play:not([disabled])")
    page.click("#play")
    wait_for_step(page, 200)
    key = state(page)["hello"]["session"]
    page.evaluate(
        """() => { const text = document.getElementById("message-text"); window.said = [];
        new MutationObserver(() => window.said.push(text.textContent)).observe(text, { childList: true }) }"""
    )
    routes[0][1].close(code=3000)  # the server's side, and then the page's
    wait_until_on_page(
        page, "() => window.said.some((text) => text.includes('connection'))"
    )  # which may be gone by now
    page.wait_for_selector("#message", state="hidden")
    wait_for_step(page, steps(page)["A"] + 200)
    assert len(routes) == 2
    assert state(page)["hello"]["session"] == key
    assert state(page)["settings"]["problem"]["points"] == 200
    page.context.close()


def test_a_hidden_tab_requests_nothing(page):
    page.click("#play")
    wait_for_step(page, 100)
    page.evaluate(
        """() => { const send = WebSocket.prototype.send; window.asked = 0;
        WebSocket.prototype.send = function (text) {
          window.asked += JSON.parse(text).type === "ready"; send.call(this, text) };
        Object.defineProperty(document, "hidden", { value: true, configurable: true });
        document.dispatchEvent(new Event("visibilitychange")) }"""
    )
    page.wait_for_timeout(600)
    assert page.evaluate("window.asked") <= 1  # after the frame that was under way, if any
    first = steps(page)
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    wait_for_step(page, max(first.values()) + 1)


def test_symbols_are_explained_on_hover_and_on_focus(page):
    tip = page.locator("#tip")
    page.hover(f"{field_selector('A', 'hidden', 'epsilon')} .symbol")
    tip.wait_for(state="visible")
    assert tip.inner_text().startswith("ε")
    page.mouse.move(5, 5)
    tip.wait_for(state="hidden")
    for name, sign in (("tau", "τ"), ("sigma", "σ")):
        page.locator(f"{field_selector('A', 'hidden', name)} input[type=range]").focus()
        page.keyboard.press("Tab")
        page.keyboard.press("Shift+Tab")
        tip.wait_for(state="visible")
        assert tip.inner_text().startswith(sign)
    explained = page.evaluate("[...document.querySelectorAll('main [data-help]')].map((e) => e.dataset.help)")
    assert {"h", "tau", "sigma", "epsilon", "gamma", "xi", "word", "letter O", "letter E"} <= set(explained)


def test_the_loss_on_lines_is_computed_and_shown_when_paused(page, monkeypatch):
    on, computed = threading.Event(), explorer_server.losses_on_lines
    monkeypatch.setattr(
        explorer_server, "losses_on_lines", lambda *given: on.wait(PATIENCE) and computed(*given)
    )
    page.click("#play")
    wait_for_step(page, 100)
    assert page.is_disabled("#lines-tab")
    pause(page)
    page.evaluate(
        """() => {
        const { prototype } = CanvasRenderingContext2D, write = prototype.fillText;
        window.texts = new Set();
        prototype.fillText = function (text, ...where) { texts.add(text); write.call(this, text, ...where) };
        }"""
    )
    page.click("#lines-tab")
    wait_until_on_page(
        page, "() => document.getElementById('loss').getAttribute('aria-label').includes('lines')"
    )
    wait_until_on_page(page, "() => texts.has('computing the lines …')")
    assert not page.evaluate("() => texts.has('start')")
    on.set()
    wait_until_on_page(page, "() => texts.has('start')")


def test_the_lines_are_updated_by_a_step_and_removed_by_a_reset(page):
    page.click("#step")
    wait_for_step(page, 1)
    page.click("#lines-tab")
    said = "document.getElementById('lines-tab').getAttribute('aria-pressed')"
    wait_until_on_page(page, f"() => {said} === 'true'")
    page.evaluate(
        """() => { const send = WebSocket.prototype.send; window.sent = [];
        WebSocket.prototype.send = function (text) { window.sent.push(text); send.call(this, text) } }"""
    )
    page.click("#step")
    wait_for_step(page, 2)
    wait_until_on_page(page, "() => window.sent.some((text) => text.includes('\"line\"'))")
    page.click("#reset")
    wait_until_on_page(page, f"() => {said} === 'false'")


def test_with_reduced_motion_maps_change_twice_a_second(browser, server):
    given = small_settings(view={"map": "mean", "speed": 100})
    with open_page(browser, server, given, own=True, reduced_motion="reduce") as page:
        page.add_init_script(
            """const send = WebSocket.prototype.send, Plain = WebSocket; window.noted = [];
            WebSocket = class extends Plain { constructor(...given) { super(...given);
              this.addEventListener("message", ({ data }) =>
                data instanceof ArrayBuffer && window.noted.push(["came", performance.now()])) } };
            Plain.prototype.send = function (text) {
              if (JSON.parse(text).type === "ready") window.noted.push(["asked", performance.now()]);
              send.call(this, text) }"""
        )
        page.reload()
        page.click("#play")
        wait_until_on_page(page, "() => window.noted.filter(([what]) => what === 'came').length > 3")
        kinds, times = zip(*page.evaluate("window.noted")[1:], strict=True)  # the first was asked for at once
    assert kinds[:6] == ("came", "asked") * 3
    waits = [asked - came for came, asked in zip(times[::2], times[1::2], strict=False)]
    assert min(waits) > 490  # ms, however slow the machine is


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_system_setting_and_the_switch_choose_light_or_dark(browser, server, scheme):
    with open_page(browser, server, small_settings(), color_scheme=scheme) as page:
        assert page.get_attribute("html", "data-theme") == scheme
        page.click("#theme")
        assert page.get_attribute("html", "data-theme") != scheme


def overflowing_elements(page):
    """Return the elements that reach beyond the window, and "the page" if it scrolls sideways."""
    return page.evaluate(
        """() => [...document.querySelectorAll('body *')].filter((e) => {
        const box = e.getBoundingClientRect();
        return box.width > 1 && box.height > 1 && (box.right > innerWidth + 0.5 || box.left < -0.5);
        }).map((e) => e.tagName + '.' + e.className).concat(
        document.documentElement.scrollWidth > innerWidth ? ['the page'] : [])"""
    )


def test_at_400_pixels_nothing_overflows(browser, server):
    with open_page(
        browser, server, small_settings(), own=True, viewport={"width": 400, "height": 850}, has_touch=True
    ) as page:
        page.click("#play")
        wait_for_step(page, 100)
        assert overflowing_elements(page) == []
        pause(page)
        page.evaluate("document.querySelectorAll('.scores dd').forEach((e) => { e.textContent = '100.0 %' })")
        assert overflowing_elements(page) == []  # with the widest numbers, too
        page.click("#open-tour")
        wait_until_true(page, lambda: overflowing_elements(page) == [], "that the tour fits")
        for button in ("problem", "share", "help"):
            page.click(f"#open-{button}")
            assert overflowing_elements(page) == []
            page.keyboard.press("Escape")
        page.add_style_tag(content=".chart { min-width: 500px !important }")
        assert overflowing_elements(page) != []  # it would be seen


def test_at_1280_by_800_nothing_has_to_be_scrolled(browser, server):
    with open_page(browser, server) as page:
        page.click("#play")
        wait_for_step(page, 100)
        sizes = "(e) => [e.scrollHeight - e.clientHeight, e.scrollWidth - e.clientWidth]"
        assert page.evaluate(f"({sizes})(document.documentElement)") == [0, 0]
        for run in "AB":
            assert page.locator(f"#run-{run} .controls").evaluate(sizes) == [0, 0]


def test_a_low_window_can_be_scrolled(browser, server):
    with open_page(browser, server, viewport={"width": 1280, "height": 700}) as page:
        page.click("#open-tour")
        wait_until_on_page(page, "() => document.documentElement.scrollHeight > 700")
        page.mouse.move(10, 400)
        page.mouse.wheel(0, 2000)
        wait_until_true(page, lambda: max(page.evaluate(ENDS)) < 701, "the end of the thermometers")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_accessibility_problem(browser, server, scheme):
    with open_page(browser, server, color_scheme=scheme, reduced_motion="reduce") as page:
        page.click("#open-tour")
        wait_for_step(page, 100)
        play_slowly(page)
        page.fill("#run-A .part-head input >> nth=0", "BAXB")
        page.wait_for_selector("#run-A .word .error:visible")
        assert accessibility_violations(page) == []
        for button in ("problem", "share", "help"):
            page.click(f"#open-{button}")
            assert accessibility_violations(page) == []
            page.keyboard.press("Escape")
        page.evaluate("document.getElementById('play').setAttribute('role', 'banana')")
        assert accessibility_violations(page) != []  # it would be seen


def test_one_page_too_many_gets_a_message(browser, server):  # the last test: sessions stay for a while
    address = server.url.replace("http", "ws") + "socket"
    with ExitStack() as others:
        open_ones, end = 0, time.monotonic() + PATIENCE
        while open_ones < 8:  # some are too many already, as long as windows before them are being closed
            assert time.monotonic() < end
            other = others.enter_context(connected(address))
            open_ones += "hello" in other.recv(timeout=PATIENCE)[:20]
        page = others.enter_context(browser.lend())
        page.goto(server.url)
        page.wait_for_selector("#message:has-text('close one')")
        assert page.is_disabled("#play")
