/** A word: its letters as text, checked while one types, and as tiles as wide as their share of h. */

import { Refusal } from "./connection.js";

/** @typedef {import("./types.js").WordAnswer} WordAnswer */

const PAUSE = 120; // ms without a key before a word is checked

let count = 0;

export class Word {
  /**
   * @param {HTMLElement} head what stands before the text: the part and its method
   * @param {string} owner
   * @param {number} longest
   * @param {(text: string) => Promise<WordAnswer>} check
   * @param {(text: string) => Promise<unknown>} apply
   */
  constructor(head, owner, longest, check, apply) {
    this.check = check;
    this.apply = apply;
    const id = `word-${++count}`;
    this.row = document.createElement("div");
    this.row.className = "word";
    this.row.dataset.help = "word";
    this.row.innerHTML = `<input type="text" spellcheck="false" autocomplete="off" autocapitalize="characters" maxlength="${longest}" aria-label="Word of ${owner}">
      <div class="tiles" aria-hidden="true"></div>
      <p class="error" id="${id}" role="alert" hidden></p>`;
    const [input, tiles, error] = /** @type {[HTMLInputElement, HTMLElement, HTMLElement]} */ (/** @type {unknown} */ ([...this.row.children]));
    head.append(input);
    this.row.prepend(head);
    this.input = input;
    this.tiles = tiles;
    this.error = error;
    this.value = "";
    this.timer = 0;
    input.addEventListener("input", () => {
      const at = input.selectionStart;
      input.value = input.value.toUpperCase();
      input.setSelectionRange(at, at);
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.look(input.value), PAUSE);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        clearTimeout(this.timer);
        input.value = this.value;
        this.look(this.value);
        event.stopPropagation();
      }
    });
    input.addEventListener("change", () => this.send());
  }

  /** Check, and show tiles or what is wrong. @param {string} text */
  async look(text) {
    try {
      const answer = await this.check(text);
      if (text !== this.input.value) return answer;
      this.complain(answer.ok ? "" : answer.text ?? "this word cannot be used");
      if (answer.ok) this.draw(answer);
      return answer;
    } catch (refusal) {
      if (!(refusal instanceof Refusal)) throw refusal;
      this.complain(refusal.message);
      return null;
    }
  }

  async send() {
    clearTimeout(this.timer);
    const text = this.input.value;
    if (text === this.value) return;
    const answer = await this.look(text);
    if (!answer?.ok) return;
    try {
      await this.apply(text);
    } catch (refusal) {
      if (!(refusal instanceof Refusal)) throw refusal;
      this.complain(refusal.message);
    }
  }

  /** @param {WordAnswer} answer */
  draw({ letters, gradients, order }) {
    this.tiles.replaceChildren(
      ...letters.map(({ letter, share }) => {
        const tile = document.createElement("span");
        tile.className = "tile";
        tile.dataset.letter = letter;
        tile.dataset.help = `letter ${letter}`;
        tile.dataset.share = String(share);
        tile.style.flexGrow = String(share);
        tile.textContent = letter;
        return tile;
      }),
    );
    const facts = [];
    if (gradients) facts.push(`${gradients} gradient${gradients > 1 ? "s" : ""} a step`);
    if (order) facts.push(`order ${order.position} in θ`);
    this.row.dataset.facts = facts.join(", ");
  }

  /** @param {string} text */
  complain(text) {
    this.error.textContent = text;
    this.error.hidden = !text;
    if (text) {
      this.input.setAttribute("aria-invalid", "true");
      this.input.setAttribute("aria-errormessage", this.error.id);
    } else {
      this.input.removeAttribute("aria-invalid");
      this.input.removeAttribute("aria-errormessage");
    }
  }

  /** The word that holds. @param {string} text */
  show(text) {
    const same = text === this.value;
    this.value = text;
    if (this.input.value !== text && (document.activeElement === this.input || !this.error.hidden)) return;
    this.input.value = text;
    if (!same) this.look(text);
  }
}
