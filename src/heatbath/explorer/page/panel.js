/** A run: its method and coefficients, its map, its thermometers. */

import { drawCurves, drawHistograms } from "./chart.js";
import { colours } from "./colours.js";
import { Refusal } from "./connection.js";
import { parsed, percent, thousands, typed } from "./format.js";
import { MapView } from "./map.js";
import { Slider } from "./slider.js";
import { state } from "./state.js";
import { Surface } from "./surface.js";
import { described, drawThermometer } from "./thermometer.js";
import { Word } from "./word.js";

/** @typedef {import("./types.js").Name} Name */
/** @typedef {import("./thermometer.js").Reading} Reading */

/**
 * What a panel asks of the page.
 * @typedef {object} Actions
 * @property {(message: Record<string, unknown> & {type: string}) => Promise<any>} ask
 * @property {(refusal: unknown) => void} report where a message has no field
 */

const HEATS = [10, 100, 1000];
const MINOR = new Set(["weight_decay", "eps"]); // coefficients that are seldom moved

export class Panel {
  /** @param {Name} name @param {Actions} actions */
  constructor(name, actions) {
    this.name = name;
    this.actions = actions;
    this.root = /** @type {HTMLElement} */ (document.getElementById(`run-${name}`));
    const template = /** @type {HTMLTemplateElement} */ (document.getElementById("run-template"));
    this.root.append(template.content.cloneNode(true));
    const badge = this.find(".badge");
    badge.textContent = name;
    badge.id = `title-${name}`;
    badge.setAttribute("aria-label", `Run ${name}`);
    this.method = /** @type {HTMLSelectElement} */ (this.find(".method select"));
    this.find(".method .hidden-label").textContent = `Method of run ${name}`;
    this.method.addEventListener("change", async () => {
      try {
        await actions.ask({ type: "change", run: name, method: this.method.value });
      } catch (refusal) {
        actions.report(refusal);
        this.method.value = state.now?.[name].method ?? "";
      }
    });
    this.map = new MapView(this.find(".map"));
    this.find("canvas.values").setAttribute("aria-label", `Map of run ${name}`);
    this.note = this.find(".note");
    this.test = this.find(".test");
    this.train = this.find(".train");
    this.controls = this.find(".controls");
    /** @type {Map<string, Slider | Word>} */
    this.fields = new Map();
    /** @type {Map<string, HTMLSelectElement>} */
    this.options = new Map();
    /** @type {{toggle: HTMLInputElement, factor: HTMLInputElement, steps: HTMLInputElement} | null} */
    this.annealing = null;
    /** @type {{button: HTMLElement, by: HTMLInputElement, send: (message: Record<string, unknown> & {type: string}) => void} | null} */
    this.heating = null;
    this.held = false; // the button that heats
    for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => this.hold(false)); // wherever it ends
    /** @type {string | undefined} */
    this.shown = undefined;
    /** @type {{surface: Surface, part: string}[]} */
    this.tubes = [];
    /** @type {Record<string, import("./types.js").Histogram>} */
    this.histogram = {};
    this.xi = new Surface(/** @type {HTMLCanvasElement} */ (this.find("canvas.xi")), (g, w, h) => this.drawXi(g, w, h));
    this.weights = new Surface(/** @type {HTMLCanvasElement} */ (this.find("canvas.weights")), (g, w, h) =>
      drawHistograms(g, w, h, Object.entries(this.histogram).map(([part, data]) => ({ name: part, data })), colours()[name]),
    );
    this.find("canvas.xi").setAttribute("aria-label", `Friction of run ${name} over steps`);
    this.find("canvas.weights").setAttribute("aria-label", `Histogram of the weights of run ${name}`);
  }

  /** @param {string} selector @returns {HTMLElement} */
  find(selector) {
    const found = this.root.querySelector(selector);
    if (!(found instanceof HTMLElement)) throw new Error(`the page has no ${selector}`);
    return found;
  }

  /** What this run's method is made of. */
  get methodInfo() {
    const name = state.now?.[this.name].method;
    return state.hello?.catalogue.methods.find((method) => method.name === name) ?? null;
  }

  /** The names of its parts in this network, as traces and thermometers call them. */
  get parts() {
    return state.ready?.parts[this.name] ?? [];
  }

  /** A new catalogue: the methods to choose from. */
  offer() {
    const groups = [
      { label: "presets", kind: "preset" },
      { label: "one method for all parts", kind: "method" },
    ].map(({ label, kind }) => {
      const group = document.createElement("optgroup");
      group.label = label;
      for (const method of state.hello?.catalogue.methods ?? [])
        if (method.kind === kind) group.append(new Option(method.name, method.name));
      return group;
    });
    this.method.replaceChildren(...groups);
  }

  /** New settings: everything anew. */
  begin() {
    this.say(null);
    this.histogram = {};
    this.map.clear();
    this.test.textContent = this.train.textContent = "–";
    this.rebuild();
  }

  /** Another method: other controls and thermometers. */
  rebuild() {
    this.method.value = state.now?.[this.name].method ?? "";
    this.method.title = this.methodInfo?.about ?? "";
    this.build();
    this.buildTubes();
    this.redraw();
  }

  /** What the server has changed. */
  changed() {
    if (this.shown !== state.now?.[this.name].method) this.rebuild();
    else this.showValues();
    this.redraw();
  }

  /** Heat while a button is held. @param {boolean} on */
  hold(on) {
    if (this.held === on || !this.heating) return;
    this.held = on;
    this.heating.send({ type: "heat", run: this.name, on, factor: Number(this.heating.by.value) });
    this.showHeat();
  }

  showHeat() {
    const hot = state.now?.[this.name].heat !== 1;
    this.root.classList.toggle("heated", hot);
    this.heating?.button.classList.toggle("held", hot || this.held);
  }

  build() {
    const { name, methodInfo: info } = this;
    this.hold(false); // of a button that is going, and will not hear of it
    this.heating = null;
    this.fields.clear();
    this.options.clear();
    this.controls.replaceChildren();
    this.annealing = null;
    this.shown = info?.name;
    if (!info || !state.now) return;
    const ask = this.actions.ask;
    const h = new Slider(info.h, `run ${name}`, (value) => ask({ type: "change", run: name, h: value }));
    this.fields.set("h", h);
    this.controls.append(h.row);
    for (const part of info.parts) {
      const box = document.createElement("div");
      box.className = "part";
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", `${part.name} of run ${name}`);
      const head = document.createElement("div");
      head.className = "part-head";
      const title = document.createElement("h3");
      title.textContent = part.name === "all" ? "all parts" : part.name;
      const method = document.createElement("span");
      method.className = "part-method";
      method.textContent = part.method.replace(/([a-z])([A-Z])/g, "$1 $2");
      head.append(title, method);
      const owner = `${part.name}, run ${name}`;
      const more = document.createElement("details");
      more.innerHTML = "<summary>more</summary>";
      if (part.word) {
        const word = new Word(
          head,
          owner,
          state.hello?.limits.letters ?? 64,
          (text) => ask({ type: "word", run: name, part: part.name, text }),
          (text) => ask({ type: "change", run: name, parts: { [part.name]: { word: text } } }),
        );
        this.fields.set(`${part.name}.word`, word);
        box.append(word.row);
      } else box.append(head);
      for (const coefficient of part.coefficients) {
        const slider = new Slider(coefficient, owner, (value) =>
          ask({ type: "change", run: name, parts: { [part.name]: { [coefficient.name]: value } } }),
        );
        this.fields.set(`${part.name}.${coefficient.name}`, slider);
        (MINOR.has(coefficient.name) ? more : box).append(slider.row);
      }
      for (const option of part.options ?? []) more.append(this.option(part.name, owner, option));
      if (more.childElementCount > 1) box.append(more);
      this.controls.append(box);
    }
    if (this.parts.some((part) => part.thermal_name)) this.controls.append(this.bath());
    if (info.parts.length === 1) {
      const about = document.createElement("p");
      about.className = "about";
      about.textContent = info.about;
      this.controls.append(about);
    }
    this.showValues();
  }

  /**
   * A choice, such as which friction the thermostat has.
   * @param {string} part
   * @param {string} owner
   * @param {import("./types.js").PartMethod["options"][number]} option
   */
  option(part, owner, { name, about, choices }) {
    const label = document.createElement("label");
    label.className = "option";
    label.title = about;
    const text = document.createElement("span");
    text.textContent = name;
    const select = document.createElement("select");
    select.setAttribute("aria-label", `${name} of ${owner}`);
    for (const choice of choices) select.append(new Option(String(choice)));
    select.addEventListener("change", async () => {
      try {
        await this.actions.ask({ type: "change", run: this.name, parts: { [part]: { [name]: choices[select.selectedIndex] } } });
      } catch (refusal) {
        this.actions.report(refusal);
        this.showValues();
      }
    });
    this.options.set(`${part}.${name}`, select);
    label.append(text, select);
    return label;
  }

  /** Annealing, and the button that heats while it is held. */
  bath() {
    const { name } = this;
    const row = document.createElement("div");
    row.className = "bath";
    row.innerHTML = `<label class="switch" data-help="anneal"><input type="checkbox" role="switch" class="anneal" aria-label="Anneal run ${name}"><span class="knob" aria-hidden="true"></span><span>anneal</span></label>
      <span class="anneal-fields"><label>×<input type="text" class="number factor" inputmode="decimal" value="0.01" aria-label="Temperatures of run ${name} fall to this factor"></label><label>in<input type="text" class="number steps" inputmode="numeric" value="20000" aria-label="Within this number of steps, run ${name}"></label></span>
      <span class="heating"><button type="button" class="heat" data-help="heat">Heat</button><select class="factor-heat" aria-label="How much to heat run ${name}">${HEATS.map((f) => `<option value="${f}">×${f}</option>`).join("")}</select></span>
      <p class="error" role="alert" hidden></p>`;
    const get = (/** @type {string} */ s) => /** @type {HTMLInputElement} */ (row.querySelector(s));
    const [toggle, factor, steps] = [get(".anneal"), get(".factor"), get(".steps")];
    const [button, by] = [get(".heat"), get(".factor-heat")];
    const error = /** @type {HTMLElement} */ (row.querySelector(".error"));
    const complain = (/** @type {string} */ text) => {
      error.textContent = text;
      error.hidden = !text;
    };
    const send = async (/** @type {Record<string, unknown> & {type: string}} */ message) => {
      try {
        await this.actions.ask(message);
        complain("");
      } catch (refusal) {
        if (!(refusal instanceof Refusal)) throw refusal;
        complain(refusal.message);
        this.showValues();
      }
    };
    const anneal = () => {
      const [to, within] = [parsed(factor.value), parsed(steps.value)];
      if (toggle.checked && (typeof to !== "number" || typeof within !== "number")) {
        complain("Annealing needs two numbers: a factor such as 0.01, and steps such as 20000.");
        toggle.checked = false;
        return;
      }
      send({ type: "change", run: name, anneal: toggle.checked ? { factor: to, steps: within } : null });
    };
    toggle.addEventListener("change", anneal);
    for (const input of [factor, steps]) input.addEventListener("change", () => toggle.checked && anneal());
    button.addEventListener("pointerdown", (event) => {
      button.setPointerCapture?.(event.pointerId);
      this.hold(true);
    });
    for (const end of ["lostpointercapture", "blur"]) button.addEventListener(end, () => this.hold(false));
    button.addEventListener("contextmenu", (event) => event.preventDefault());
    button.addEventListener("keydown", (event) => {
      if (event.key === " " || event.key === "Enter") {
        event.preventDefault();
        this.hold(true);
      }
    });
    button.addEventListener("keyup", (event) => {
      if (event.key === " " || event.key === "Enter") this.hold(false);
    });
    this.annealing = { toggle, factor, steps };
    this.heating = { button, by, send };
    return row;
  }

  /** The values in effect. */
  showValues() {
    if (!state.now) return;
    this.showHeat();
    const { h, parts, anneal } = state.now[this.name];
    for (const [path, field] of this.fields) {
      const [part, name] = path.split(".");
      const value = path === "h" ? h : parts[part]?.[name];
      if (value === undefined || value === null) continue;
      if (field instanceof Word) field.show(String(value));
      else field.show(/** @type {import("./types.js").Value} */ (value));
    }
    for (const [path, select] of this.options) {
      const [part, name] = path.split(".");
      select.value = String(parts[part]?.[name] ?? select.value);
    }
    if (this.annealing) {
      this.annealing.toggle.checked = Boolean(anneal);
      if (anneal) {
        this.annealing.factor.value = typed(anneal.factor);
        this.annealing.steps.value = String(anneal.steps);
      }
    }
  }

  buildTubes() {
    const holder = this.find(".tubes");
    for (const { surface } of this.tubes) surface.end();
    this.tubes = [];
    holder.replaceChildren(
      ...this.parts.map(({ name: part }) => {
        const canvas = document.createElement("canvas");
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", `Thermometer of ${part}`);
        if (this.parts.length > 2 && part === this.parts[0].name) canvas.style.flexGrow = "1.6"; // for the numbers
        this.tubes.push({ part, surface: new Surface(canvas, (g, w, h) => drawThermometer(g, w, h, this.reading(part))) });
        return canvas;
      }),
    );
  }

  /** @param {string} part @returns {Reading} */
  reading(part) {
    const trace = state.traces[this.name];
    const info = this.parts.find(({ name }) => name === part);
    const last = (/** @type {import("./types.js").Series | undefined} */ series) => series?.[series.length - 1] ?? null;
    return {
      part,
      run: this.name,
      thermal: info?.thermal ?? false,
      kinetic: last(trace?.temperature?.[part]),
      configurational: last(trace?.configurational?.[part]),
      target: this.target(info?.key ?? part),
      first: part === this.parts[0]?.name,
    };
  }

  /** The temperature that a part is to have now, heated and annealed. @param {string} key */
  target(key) {
    const now = state.now?.[this.name];
    const tau = now?.parts[key]?.tau;
    if (!now || typeof tau !== "number") return null;
    const { anneal, heat } = now;
    if (!anneal) return tau * heat;
    const passed = (state.steps[this.name] - (anneal.from ?? 0)) / anneal.steps;
    return tau * heat * anneal.factor ** Math.max(0, Math.min(1, passed));
  }

  /** @param {CanvasRenderingContext2D} g @param {number} width @param {number} height */
  drawXi(g, width, height) {
    const adaptive = this.parts.filter((part) => part.adaptive);
    const trace = state.traces[this.name];
    const curves = adaptive.map(({ name: part }, i) => ({
      x: trace?.step ?? [],
      y: trace?.xi?.[part] ?? [],
      colour: i ? colours().ink : colours()[this.name],
      dash: [[], [4, 2], [1.5, 2], [7, 2, 1.5, 2]][i % 4],
    }));
    const empty = adaptive.length ? "" : "no thermostat: its friction is fixed, or it has none";
    drawCurves(g, width, height, curves, { scale: "linear", empty });
  }

  /** @param {import("./types.js").Frame} frame */
  frame(frame) {
    const own = frame.runs[this.name];
    this.map.show(own.map, frame.width, frame.height);
  }

  /** The numbers. @param {import("./types.js").Frame} frame */
  read(frame) {
    const own = frame.runs[this.name];
    this.test.textContent = percent(own.accuracy.test);
    this.train.textContent = percent(own.accuracy.train);
  }

  /** Thermometers, friction and weights. @returns {Surface[]} */
  charts() {
    return [...this.tubes.map(({ surface }) => surface), this.xi, this.weights];
  }

  redraw() {
    for (const chart of this.charts()) chart.redraw();
    this.describe();
  }

  /** What the thermometers show, in words. */
  describe() {
    for (const { part, surface } of this.tubes) surface.canvas.setAttribute("aria-label", described(this.reading(part)));
  }

  /**
   * Something to say on the map, or nothing.
   * @param {"compiling" | "diverged" | null} kind
   * @param {import("./types.js").Diverged} [what]
   */
  say(kind, what) {
    this.note.hidden = !kind;
    this.note.className = `note ${kind ?? ""}`;
    this.note.replaceChildren();
    if (kind === "compiling") this.note.append("Compiling: some seconds, once for each kind of network and method.");
    if (kind === "diverged" && what) {
      const part = what.part === "all" ? "the network" : what.part;
      const title = document.createElement("strong");
      title.textContent = `Run ${this.name}: ${part} diverged at step ${thousands(what.step)}`;
      const text = document.createElement("span");
      const stopped = what.living ? `${what.chains} of ${what.chains + what.living} chains stopped.` : "All chains stopped.";
      const thermal = this.parts.some(({ name, thermal: has }) => name === what.part && has);
      text.textContent = `${stopped} A smaller h${thermal ? `, or a lower temperature of ${part},` : ""} may help.`;
      const back = document.createElement("button");
      back.type = "button";
      back.textContent = "Back to the last good state";
      back.addEventListener("click", () => this.actions.ask({ type: "rewind", run: this.name }).catch(this.actions.report));
      this.note.append(title, text, back);
    }
  }
}
