/** A coefficient: its symbol, a slider (logarithmic where its range asks for it), and its number to edit. */

import { Refusal } from "./connection.js";
import { parsed, typed } from "./format.js";

/** @typedef {import("./types.js").Coefficient} Coefficient */
/** @typedef {import("./types.js").Value} Value */

const TICKS = 200; // places of a slider between its ends
const PAUSE = 60; // ms between two messages while a slider is dragged

/** Where on the slider a value is; 0 and infinity have places of their own at the ends. @param {Coefficient} c @param {Value} value */
function placeOf(c, value) {
  const [first, last] = [c.zero ? 1 : 0, c.infinite ? TICKS - 1 : TICKS];
  if (value === "inf" || value === Infinity) return TICKS;
  const number = Number(value);
  if (c.zero && number === 0 && c.scale !== "linear") return 0;
  let share = 0;
  if (c.scale === "linear") share = (number - c.low) / (c.high - c.low);
  else if (c.scale === "complement") share = Math.log((1 - c.low) / (1 - number)) / Math.log((1 - c.low) / (1 - c.high));
  else share = Math.log(number / c.low) / Math.log(c.high / c.low);
  return Math.round(Math.max(first, Math.min(last, first + share * (last - first))));
}

/** @param {Coefficient} c @param {number} place @returns {Value} */
function valueAt(c, place) {
  const [first, last] = [c.zero ? 1 : 0, c.infinite ? TICKS - 1 : TICKS];
  if (c.infinite && place >= TICKS) return "inf";
  if (c.zero && place <= 0) return 0;
  const share = (place - first) / (last - first);
  let value;
  if (c.scale === "linear") value = c.low + share * (c.high - c.low);
  else if (c.scale === "complement") value = 1 - (1 - c.low) * ((1 - c.high) / (1 - c.low)) ** share;
  else value = c.low * (c.high / c.low) ** share;
  if (c.scale === "complement") return 1 - Number((1 - value).toPrecision(2));
  return Number(value.toPrecision(2));
}

let count = 0;

export class Slider {
  /**
   * @param {Coefficient} coefficient
   * @param {string} owner such as "A, hidden", for those who cannot see where it stands
   * @param {(value: Value) => Promise<unknown>} apply
   */
  constructor(coefficient, owner, apply) {
    this.coefficient = coefficient;
    this.apply = apply;
    const id = `slider-${++count}`;
    const name = coefficient.name.replaceAll("_", " ");
    this.row = document.createElement("div");
    this.row.className = "coefficient";
    this.row.dataset.help = coefficient.name;
    this.row.dataset.name = coefficient.name;
    this.row.innerHTML = `<span class="symbol" aria-hidden="true"></span>
      <input type="range" min="0" max="${TICKS}" step="1" id="${id}">
      <input type="text" class="number" inputmode="decimal" spellcheck="false" autocomplete="off">
      <p class="error" id="${id}-error" role="alert" hidden></p>`;
    const [symbol, range, number, error] = /** @type {[HTMLElement, HTMLInputElement, HTMLInputElement, HTMLElement]} */ (
      /** @type {unknown} */ ([...this.row.children])
    );
    symbol.textContent = coefficient.symbol || coefficient.name;
    symbol.classList.toggle("long", symbol.textContent.length > 3);
    range.setAttribute("aria-label", `${name} of ${owner}`);
    number.setAttribute("aria-label", `${name} of ${owner}, as a number`);
    this.range = range;
    this.number = number;
    this.error = error;
    /** @type {Value | null} */
    this.waiting = null;
    this.busy = false;
    range.addEventListener("input", () => {
      const value = valueAt(coefficient, Number(range.value));
      this.write(value, range);
      this.send(value);
    });
    number.addEventListener("change", () => this.typedIn());
    number.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        this.complain("");
        this.write(this.value);
        number.select();
        event.stopPropagation();
      }
    });
    /** @type {Value} */
    this.value = coefficient.default ?? coefficient.low;
    this.write(this.value);
  }

  typedIn() {
    const value = parsed(this.number.value);
    if (value === null || (value === "inf" && !this.coefficient.infinite)) {
      const more = this.coefficient.infinite ? ", or inf" : "";
      this.complain(`“${this.number.value}” is no number; write one such as ${typed(this.coefficient.default ?? this.coefficient.low)}${more}.`);
      return;
    }
    this.send(value);
  }

  /**
   * One message at a time; what was moved to in the meantime comes next.
   * @param {Value} value
   */
  async send(value) {
    this.waiting = value;
    if (this.busy) return;
    this.busy = true;
    while (this.waiting !== null) {
      const next = this.waiting;
      this.waiting = null;
      try {
        await this.apply(next);
        this.complain("");
      } catch (refusal) {
        if (!(refusal instanceof Refusal)) throw refusal;
        this.complain(refusal.message);
      }
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
    this.busy = false;
    this.show(this.value);
  }

  /** @param {string} text */
  complain(text) {
    this.error.textContent = text;
    this.error.hidden = !text;
    if (text) {
      this.number.setAttribute("aria-invalid", "true");
      this.number.setAttribute("aria-errormessage", this.error.id);
    } else {
      this.number.removeAttribute("aria-invalid");
      this.number.removeAttribute("aria-errormessage");
    }
  }

  /**
   * The value that holds, as the server says; what a hand is on is left alone.
   * @param {Value} value
   */
  show(value) {
    this.value = value;
    if (this.busy || this.waiting !== null || !this.error.hidden) return;
    if (document.activeElement === this.number && parsed(this.number.value) !== value) return;
    this.write(value);
  }

  /** @param {Value} value @param {HTMLElement} [source] */
  write(value, source) {
    this.number.value = typed(value);
    if (source !== this.range) this.range.value = String(placeOf(this.coefficient, value));
    const share = (100 * Number(this.range.value)) / TICKS;
    this.range.style.setProperty("--share", `${share}%`);
    this.range.setAttribute("aria-valuetext", typed(value));
  }
}
