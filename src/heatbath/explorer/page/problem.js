/** The dialog for data, network and training: fields, drawing, and a CSV dropped onto the page. */

import { Refusal } from "./connection.js";
import { get } from "./dom.js";
import { Drawing } from "./drawing.js";
import { parsed, typed } from "./format.js";
import { copy, state } from "./state.js";

/** @typedef {import("./types.js").Settings} Settings */
/** @typedef {import("./types.js").Problem} Problem */

const LARGEST = 900_000; // bytes of a CSV: with more, the message would not stay below the server's limit

/** Fields of each kind, with what they start at. @type {Record<string, {title: string, fields: [string, string, number][]}>} */
const KINDS = {
  spirals: { title: "spirals", fields: [["turns", "turns", 4], ["noise", "noise", 0.02], ["p", "exponent p", 0.5]] },
  trigonometric: { title: "waves", fields: [["a", "length a", 6], ["b", "frequency b", 1], ["noise", "noise", 0.02]] },
  rings: { title: "rings", fields: [["noise", "noise", 0.02]] },
  blobs: { title: "blobs", fields: [["centres", "centres", 4], ["noise", "noise", 0.3]] },
  points: { title: "draw", fields: [] },
  csv: { title: "CSV", fields: [] },
};
/** @type {[string, string, number][]} */
const COMMON = [["points", "points", 1000], ["seed", "seed of the data", 0]];

/** Whole number or number as typed; what is none goes to the server as text, which says what is wrong. @param {string} text */
const value = (text) => parsed(text) ?? text;

/** One line about the settings. @param {Settings} settings */
export function summary({ problem, network, batch, chains, seed }) {
  /** @type {Record<string, () => string>} */
  const what = {
    spirals: () => `${typed(problem.turns)}-turn spirals`,
    trigonometric: () => `waves, a = ${typed(problem.a)}, b = ${typed(problem.b)}`,
    rings: () => "rings",
    blobs: () => `${problem.centres} blobs`,
    points: () => "drawn points",
    csv: () => "CSV",
  };
  const count = Array.isArray(problem.points) ? problem.points.length : problem.points ?? state.ready?.train.length;
  return {
    problem: `${(what[problem.kind] ?? (() => problem.kind))()}, ${count} points`,
    network: `2-${network.hidden.join("-")}-1 ${network.activation}`,
    training: `batch ${batch}, ${chains} chain${chains === 1 ? "" : "s"}, seed ${seed}`,
    chains: `${chains} chain${chains === 1 ? "" : "s"}`,
  };
}

export class ProblemDialog {
  /** @param {(settings: Settings) => Promise<unknown>} setup */
  constructor(setup) {
    this.setup = setup;
    /** @type {HTMLDialogElement} */
    this.dialog = get("problem-dialog");
    this.kind = "spirals";
    this.text = "";
    /** @type {Record<string, Problem>} */
    this.drafts = {};
    const label = () => /** @type {0 | 1} */ (Number(this.dialog.querySelector('[name="draw-class"]:checked')?.getAttribute("value")));
    this.drawing = new Drawing(
      get("draw-canvas"),
      label,
      (points) => {
        const ones = points.filter(([, , c]) => c).length;
        get("draw-count").textContent = `${points.length - ones} + ${ones} points`;
      },
      () => /** @type {HTMLInputElement} */ (this.dialog.querySelector('[name="draw-class"]:not(:checked)')).click(),
    );
    get("draw-undo").addEventListener("click", () => this.drawing.undo());
    get("draw-clear").addEventListener("click", () => this.drawing.clear());
    get("kinds").replaceChildren(
      ...Object.entries(KINDS).map(([kind, { title }]) => {
        const label = document.createElement("label");
        label.innerHTML = `<input type="radio" name="kind" value="${kind}"><span>${title}</span>`;
        label.firstElementChild?.addEventListener("change", () => this.choose(kind));
        return label;
      }),
    );
    get("net-init").addEventListener("change", () => this.showScale());
    get("csv-file").addEventListener("change", () => this.take(get("csv-file").files[0]));
    get("problem-form").addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      this.apply();
    });
    document.addEventListener("dragover", (event) => {
      event.preventDefault();
      document.documentElement.classList.add("dropping");
    });
    document.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) document.documentElement.classList.remove("dropping");
    });
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      document.documentElement.classList.remove("dropping");
      const file = event.dataTransfer?.files[0];
      if (!file || !state.settings) return;
      if (!this.dialog.open) this.open();
      this.choose("csv");
      this.take(file);
    });
  }

  open() {
    const settings = state.settings;
    if (!settings) return;
    this.complain("");
    this.drawing.most = state.hello?.limits.drawn ?? 2000;
    this.drafts[settings.problem.kind] = copy(settings.problem);
    if (settings.problem.kind === "points") this.drawing.load(settings.problem.points);
    if (settings.problem.kind === "csv") this.text = settings.problem.text;
    get("net-hidden").value = settings.network.hidden.join(", ");
    get("net-activation").value = settings.network.activation;
    get("net-init").value = settings.network.init;
    get("net-scale").value = typed(settings.network.scale);
    get("set-batch").value = settings.batch;
    get("set-chains").value = settings.chains;
    get("set-seed").value = settings.seed;
    this.choose(settings.problem.kind);
    this.showScale();
    this.dialog.showModal();
  }

  showScale() {
    get("net-scale-field").hidden = get("net-init").value !== "gaussian";
  }

  /** @param {string} kind */
  choose(kind) {
    this.kind = kind;
    for (const radio of this.dialog.querySelectorAll('[name="kind"]'))
      if (radio instanceof HTMLInputElement) radio.checked = radio.value === kind;
    get("draw").hidden = kind !== "points";
    get("csv").hidden = kind !== "csv";
    const draft = this.drafts[kind] ?? {};
    const fields = kind === "points" || kind === "csv" ? [] : [...KINDS[kind].fields, ...COMMON];
    get("problem-fields").replaceChildren(
      ...fields.map(([name, title, start]) => {
        const label = document.createElement("label");
        label.className = "field";
        const text = document.createElement("span");
        text.textContent = title;
        const input = document.createElement("input");
        input.type = "text";
        input.inputMode = "decimal";
        input.name = name;
        input.dataset.field = `problem.${name}`;
        input.value = typed(draft[name] ?? start);
        label.append(text, input);
        return label;
      }),
    );
    if (kind === "csv") get("csv-target").value = draft.target ?? "";
    this.showFile();
  }

  showFile(name = "") {
    const lines = this.text.split("\n").filter((line) => line.trim()).length;
    get("drop-text").textContent = this.text
      ? `${name || "A table"}: ${lines} lines. Drop or choose another to replace it.`
      : "Drop a CSV here, or choose a file: two columns of numbers, and one with two classes.";
  }

  /** @param {File | undefined} file */
  async take(file) {
    if (!file) return;
    if (file.size > LARGEST) {
      this.complain(`${file.name} has ${file.size} bytes; accepted are up to ${LARGEST}. Take fewer rows.`);
      return;
    }
    this.text = await file.text();
    this.complain("");
    this.showFile(file.name);
  }

  /** @returns {Problem} */
  problem() {
    if (this.kind === "points") return { kind: "points", points: this.drawing.points };
    if (this.kind === "csv") return { kind: "csv", text: this.text, target: get("csv-target").value.trim() || null };
    /** @type {Problem} */
    const problem = { kind: this.kind };
    for (const input of get("problem-fields").querySelectorAll("input")) problem[input.name] = value(input.value);
    return problem;
  }

  async apply() {
    if (!state.settings || !state.now) return;
    if (this.kind === "csv" && !this.text) {
      this.complain("There is no table yet: drop a CSV, or choose a file.");
      return;
    }
    const settings = /** @type {any} */ (copy(state.settings));
    for (const [name, { method, h, parts, anneal }] of Object.entries(state.now))
      settings.runs[name] = { method, h, parts, anneal: anneal && { factor: anneal.factor, steps: anneal.steps } }; // as after a reset
    delete settings.view; // that of now stays
    settings.problem = this.problem();
    const hidden = String(get("net-hidden").value).split(/[\s,;x×-]+/).filter(Boolean).map(value);
    settings.network = {
      hidden,
      activation: get("net-activation").value,
      init: get("net-init").value,
      scale: value(get("net-scale").value),
    };
    for (const name of ["batch", "chains", "seed"]) settings[name] = value(get(`set-${name}`).value);
    this.complain("");
    get("problem-apply").disabled = true;
    try {
      await this.setup(settings);
      this.dialog.close();
    } catch (refusal) {
      if (!(refusal instanceof Refusal)) throw refusal;
      this.complain(refusal.message, refusal.field);
    } finally {
      get("problem-apply").disabled = false;
    }
  }

  /** At its field, if there is one. @param {string} text @param {string} [field] */
  complain(text, field) {
    for (const input of this.dialog.querySelectorAll("[data-field]")) {
      const wrong = Boolean(text) && field !== undefined && input.getAttribute("data-field") === field;
      if (wrong) {
        input.setAttribute("aria-invalid", "true");
        input.setAttribute("aria-errormessage", "problem-error");
        /** @type {HTMLElement} */ (input).focus();
      } else {
        input.removeAttribute("aria-invalid");
        input.removeAttribute("aria-errormessage");
      }
    }
    get("problem-error").textContent = text;
    get("problem-error").hidden = !text;
  }
}
