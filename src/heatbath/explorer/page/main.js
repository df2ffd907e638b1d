/** The page: what the server says goes to its panels, what hands do goes to the server. */

import { drawCurves, drawLines } from "./chart.js";
import { shades, theme } from "./colours.js";
import { Connection, Refusal } from "./connection.js";
import { get } from "./dom.js";
import { percent, pretty, short, thousands } from "./format.js";
import { fillHelp, startTips } from "./help.js";
import { decode, encode } from "./link.js";
import { Panel } from "./panel.js";
import { curvesOf, lossFloor, told } from "./picture.js";
import { ProblemDialog, summary } from "./problem.js";
import { ShareDialog } from "./share.js";
import { begin, change, copy, extend, NAMES, rewind, state } from "./state.js";
import { Surface } from "./surface.js";
import { Tour } from "./tour.js";

/** @typedef {import("./types.js").Name} Name */
/** @typedef {import("./types.js").Settings} Settings */
/** @typedef {import("./types.js").View} View */

const SPEEDS = [1, 3, 10, 30, 100, 300, 1000, 3000, 10000, null]; // steps a second
const READ = 240; // ms between two looks of numbers and charts: nobody reads faster, and they cost more than maps
const MOVING = 96; // pixels of a map while runs play at full speed: what is saved goes to training
const STILL = 160; // and else

theme.start();
startTips();

/** @type {View} */
const view = { map: "mean", chain: 0, units: false, data: "train", speed: null };
/** @type {Record<string, import("./types.js").Line> | null} */
let lines = null;
let wantsLines = false;

const connection = new Connection({ message: receive, frame: showFrame, status: showStatus });

/** @type {Record<Name, Panel>} */
const panels = { A: new Panel("A", actions()), B: new Panel("B", actions()) };
const problemDialog = new ProblemDialog((settings) => setup(settings));
const shareDialog = new ShareDialog(connection, panels, current);
const tour = new Tour(async (settings) => {
  try {
    await setup(copy(settings), true);
  } catch (refusal) {
    report(refusal);
  }
});

/** Where values are read off the charts, in pixels from their left. @type {number | null} */
let pointer = null;
const loss = new Surface(get("loss"), (g, width, height) => {
  if (wantsLines && lines) drawLines(g, width, height, lines);
  else if (wantsLines) drawCurves(g, width, height, [], { scale: "log", empty: "computing the lines …" });
  else drawCurves(g, width, height, curvesOf("loss"), { scale: "log", floor: lossFloor(), pointer, empty: "start, and the loss appears here" });
});
const accuracy = new Surface(get("accuracy"), (g, width, height) =>
  drawCurves(g, width, height, curvesOf("accuracy"), { scale: "percent", pointer, empty: "start, and the accuracy appears here" }),
);
for (const chart of [loss, accuracy])
  for (const move of ["pointermove", "pointerleave"])
    chart.canvas.addEventListener(move, (event) => {
      pointer = event.type === "pointermove" ? /** @type {PointerEvent} */ (event).offsetX : null;
      loss.redraw();
      accuracy.redraw();
    });

/** @returns {import("./panel.js").Actions} */
function actions() {
  return {
    ask: (message) => connection.ask(message),
    report,
  };
}

/** The settings as a link has them. @returns {Settings | null} */
function current() {
  return state.settings && { ...copy(state.settings), view: { ...view } };
}

/** Restart both runs. @param {Settings} settings */
async function setup(settings, play = false) {
  await connection.ask({ type: "setup", settings: { ...settings, view: { ...view, ...settings.view } } });
  if (play) connection.send({ type: "play" });
}

/** A refusal is shown; anything else is a mistake of ours. @param {unknown} refusal */
function report(refusal) {
  if (!(refusal instanceof Refusal)) throw refusal;
  say(refusal.message, "error");
}

/** @param {string} text @param {"error" | "info" | "wait"} kind */
function say(text, kind = "info") {
  get("message").className = `message ${kind}`;
  get("message").hidden = !text;
  get("message-text").textContent = text;
}

/** @param {"open" | "lost" | "refused"} status @param {string} [text] */
function showStatus(status, text) {
  document.documentElement.dataset.connection = status;
  if (status === "lost") say("The connection is lost. Trying again …", "wait");
  if (status === "refused") say(`The server closed the connection: ${text || "too many messages"}. Load the page again to go on.`, "error");
}

/** @param {import("./connection.js").Message} message */
function receive(message) {
  switch (message.type) {
    case "hello":
      return greet(/** @type {any} */ (message));
    case "ready":
      return start(/** @type {any} */ (message));
    case "state":
      return showState(/** @type {any} */ (message));
    case "changed":
      change(/** @type {any} */ (message));
      panels[/** @type {Name} */ (message.run)].changed();
      return remember();
    case "compiling":
      return panels[/** @type {Name} */ (message.run)].say(message.done ? null : "compiling");
    case "traces":
      for (const [name, piece] of Object.entries(message.runs)) extend(/** @type {Name} */ (name), piece);
      return grow();
    case "histogram":
      for (const [name, parts] of Object.entries(message.runs)) panels[/** @type {Name} */ (name)].histogram = parts;
      return grow();
    case "units":
      for (const [name, units] of Object.entries(message.runs)) {
        panels[/** @type {Name} */ (name)].map.lines = view.units ? units : [];
        panels[/** @type {Name} */ (name)].map.units.redraw();
      }
      return;
    case "diverged":
      return panels[/** @type {Name} */ (message.run)].say("diverged", /** @type {any} */ (message));
    case "rewound":
      rewind(/** @type {any} */ (message));
      panels[/** @type {Name} */ (message.run)].say(null);
      panels[/** @type {Name} */ (message.run)].changed();
      return remember();
    case "line":
      lines = message.lines;
      return loss.redraw();
    case "error":
      return say(message.text, "error");
    case "busy":
      connection.end();
      return say(message.text, "error");
  }
}

/** @param {import("./types.js").Hello} hello */
function greet(hello) {
  const again = state.hello?.session === hello.session;
  state.hello = hello;
  for (const name of NAMES) panels[name].offer();
  tour.offer();
  say("");
  if (again) return; // the session lives on, and its `ready` follows
  const before = current();
  begun(before)
    .then(() => before && say("The server has ended the runs in the meantime: they restart.", "info"))
    .catch(report);
}

/** The first settings: of the page before the connection was lost, of its address, or the usual ones. @param {Settings | null} before */
async function begun(before) {
  const defaults = /** @type {Settings} */ (state.hello?.defaults);
  let wanted = before;
  try {
    wanted ??= decode(location.hash);
  } catch {
    say("The link is damaged: its settings cannot be read. The default settings are shown instead.", "error");
  }
  try {
    await setup(wanted ?? defaults);
  } catch (refusal) {
    report(refusal);
    await setup(copy(defaults));
  }
}

/** @param {import("./types.js").Ready} ready */
function start(ready) {
  begin(ready);
  Object.assign(view, ready.settings.view ?? {});
  if (!SPEEDS.includes(view.speed ?? null)) view.speed = null;
  lines = null;
  state.steps = { A: 0, B: 0 };
  for (const name of NAMES) {
    const { map } = panels[name];
    map.domain = ready.domain;
    panels[name].begin();
  }
  for (const id of ["play", "step", "reset", "open-problem", "open-tour", "open-share"]) get(id).disabled = false;
  sendView();
  connection.send({ type: "speed", speed: view.speed ?? null });
  const { problem, network, chains } = summary(ready.settings);
  get("problem-summary").replaceChildren(
    ...[problem, network, chains].map((text) => {
      const item = document.createElement("span");
      item.textContent = text;
      return item;
    }),
  );
  get("chain").max = String(ready.settings.chains);
  loss.redraw();
  accuracy.redraw();
  connection.send({ type: "ready", frame: 0 });
}

/** @param {import("./types.js").State} message */
function showState({ playing, speed, steps }) {
  state.playing = playing;
  state.steps = steps;
  document.documentElement.classList.toggle("playing", playing);
  if (sized !== size()) sendView();
  get("play-text").textContent = playing ? "Pause" : steps.A > 0 ? "Go on" : "Start";
  get("lines-tab").disabled = playing || steps.A === 0;
  if (wantsLines) {
    if (get("lines-tab").disabled) chooseLines(false);
    else tell("line"); // which end elsewhere after a step
  }
  const place = SPEEDS.indexOf(speed ?? null);
  if (place >= 0 && document.activeElement !== get("speed")) get("speed").value = String(place);
  showSpeed();
  showSteps();
  if (!playing) {
    rated = { time: 0, step: 0 };
    get("rate").textContent = "–";
  }
}

function showSteps() {
  const { A, B } = state.steps;
  const each = Math.max(A, B) < 1e6 ? thousands : short; // of two there is room for so much
  get("steps").textContent = Math.abs(A - B) <= Math.max(1000, 0.02 * A) ? thousands(A) : `${each(A)} / ${each(B)}`;
}

let rated = { time: 0, step: 0 };
let drawn = 0; // when the numbers were, on this page's clock
let growing = 0;

/** There is more to draw on the charts: with the next map that has numbers, or by itself where none comes. */
function grow() {
  growing ||= setTimeout(drawCharts, state.playing ? 2 * READ : 0);
}

function drawCharts() {
  clearTimeout(growing);
  growing = 0;
  for (const chart of [loss, accuracy, ...NAMES.flatMap((name) => panels[name].charts())]) chart.paint();
}

/** A map for each run, and now and then the numbers and the charts. @param {import("./types.js").Frame} frame */
function showFrame(frame) {
  const now = performance.now();
  for (const name of NAMES) {
    panels[name].frame(frame);
    state.steps[name] = frame.runs[name].step;
  }
  if (!state.playing || now - drawn > READ) {
    drawn = now;
    for (const name of NAMES) panels[name].read(frame);
    showSteps();
    if (growing) drawCharts();
  }
  if (state.playing && now - rated.time > 1000) {
    if (rated.time && frame.runs.A.step > rated.step)
      get("rate").textContent = short(Number(((1000 * (frame.runs.A.step - rated.step)) / (now - rated.time)).toPrecision(2)));
    rated = { time: now, step: frame.runs.A.step };
    describe(frame);
  }
}

/** What maps and charts show, in words. @param {import("./types.js").Frame} frame */
function describe(frame) {
  for (const name of NAMES) {
    panels[name].map.values.setAttribute("aria-label", told(panels[name]));
    panels[name].describe();
  }
  /** @param {"loss" | "accuracy"} quantity @param {(value: number) => string} text */
  const both = (quantity, text) =>
    NAMES.map((name) => `${name} test ${text(frame.runs[name][quantity].test)}, train ${text(frame.runs[name][quantity].train)}`).join("; ");
  if (!wantsLines) get("loss").setAttribute("aria-label", `Loss over steps: ${both("loss", pretty)}`);
  get("accuracy").setAttribute("aria-label", `Accuracy over steps: ${both("accuracy", percent)}`);
}

/** Which map, which data, which lines. */
function showView() {
  const doubt = view.map === "sd";
  for (const name of NAMES) {
    const { map } = panels[name];
    map.kind = doubt ? "doubt" : "classes";
    map.data = view.data === "none" || !state.ready ? [] : state.ready[view.data === "test" ? "test" : "train"];
    if (!view.units) map.lines = [];
    map.points.redraw();
    map.units.redraw();
  }
  for (const radio of document.querySelectorAll('[name="map"], [name="data"]'))
    if (radio instanceof HTMLInputElement) radio.checked = radio.value === (radio.name === "map" ? view.map : view.data);
  const deep = (state.settings?.network.hidden.length ?? 1) > 1;
  get("units").disabled = deep; // whose units do not switch on lines
  get("units").checked = Boolean(view.units) && !deep;
  get("chain-label").hidden = view.map !== "chain" && !get("units").checked;
  get("chain").value = String((view.chain ?? 0) + 1);
  const [low, high] = doubt ? ["sure", "in doubt"] : state.ready?.targets?.map((name) => `class ${name}`) ?? ["class 0", "class 1"];
  get("scale-low").textContent = low;
  get("scale-high").textContent = high;
  showScale();
}

function showScale() {
  const canvas = get("scale");
  const context = canvas.getContext("2d");
  const image = context.createImageData(256, 1);
  new Uint32Array(image.data.buffer).set(shades()[view.map === "sd" ? "doubt" : "classes"]);
  context.putImageData(image, 0, 0);
}

function sendView() {
  showView();
  sized = size();
  connection.send({ type: "view", map: view.map, chain: view.chain ?? 0, units: Boolean(view.units), size: sized });
  remember();
}

let sized = STILL;

const size = () => (state.playing && view.speed === null ? MOVING : STILL);

let timer = 0;

/** The address follows what is set, not more often than twice a second. */
function remember() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const settings = current();
    if (settings) history.replaceState(null, "", `#${encode(settings)}`);
  }, 500);
}

/** @param {boolean} on */
function chooseLines(on) {
  wantsLines = on;
  get("lines-tab").setAttribute("aria-pressed", String(on));
  get("loss").setAttribute("aria-label", on ? "Loss on the lines between the start, A and B" : "Loss over steps");
  loss.redraw();
}

function showSpeed() {
  const place = Number(get("speed").value);
  const speed = SPEEDS[place];
  get("speed").style.setProperty("--share", `${(100 * place) / (SPEEDS.length - 1)}%`);
  get("speed-text").textContent = speed === null ? "all" : `${short(speed)}/s`;
  get("speed").setAttribute("aria-valuetext", speed === null ? "all that the machine can" : `${speed} steps a second`);
}

/** @param {string} type */
function tell(type, more = {}) {
  connection.ask({ type, ...more }).catch(report);
}

get("play").addEventListener("click", () => tell(state.playing ? "pause" : "play"));
get("step").addEventListener("click", () => tell("step", { steps: 1 }));
get("reset").addEventListener("click", async () => {
  const playing = state.playing;
  try {
    await connection.ask({ type: "reset" });
    if (playing) connection.send({ type: "play" });
  } catch (refusal) {
    report(refusal);
  }
});
get("speed").addEventListener("input", () => {
  showSpeed();
  view.speed = SPEEDS[Number(get("speed").value)];
  connection.send({ type: "speed", speed: view.speed });
  sendView();
});
get("map-view").addEventListener("change", (/** @type {any} */ event) => {
  view.map = event.target.value;
  sendView();
});
get("data-view").addEventListener("change", (/** @type {any} */ event) => {
  view.data = event.target.value;
  showView();
  remember();
});
get("units").addEventListener("change", () => {
  view.units = get("units").checked;
  sendView();
});
get("chain").addEventListener("change", () => {
  const most = state.settings?.chains ?? 1;
  view.chain = Math.max(1, Math.min(most, Math.round(Number(get("chain").value)) || 1)) - 1;
  sendView();
});
get("lines-tab").addEventListener("click", () => {
  chooseLines(!wantsLines);
  if (wantsLines) tell("line");
});
get("open-problem").addEventListener("click", () => problemDialog.open());
get("open-share").addEventListener("click", () => shareDialog.open());
get("open-help").addEventListener("click", () => {
  fillHelp(get("help-list"));
  get("help-dialog").showModal();
});
get("message-close").addEventListener("click", () => say(""));
for (const button of document.querySelectorAll("dialog .close")) button.addEventListener("click", () => button.closest("dialog")?.close());
for (const dialog of document.querySelectorAll("dialog"))
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // beside it
  });

const showTheme = () => {
  get("theme").setAttribute("aria-pressed", String(theme.dark));
  showScale();
};
get("theme").addEventListener("click", () => theme.toggle());
theme.listeners.add(showTheme);
showTheme();

addEventListener("hashchange", async () => {
  try {
    const settings = decode(location.hash);
    if (settings) await setup(settings);
  } catch (refusal) {
    say(refusal instanceof Refusal ? refusal.message : "The link is damaged: its settings cannot be read.", "error");
  }
});

document.addEventListener("keydown", (event) => {
  const target = /** @type {Element} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (target.matches("input:not([type=range], [type=radio], [type=checkbox]), select, textarea")) return;
  const button = { " ": "play", s: "step", r: "reset" }[event.key];
  if (!button || event.repeat || (event.key === " " && target.matches("button, input, a"))) return;
  event.preventDefault();
  get(button).click();
});
