/** Share: link, code, picture, film and run. */

import { Refusal } from "./connection.js";
import { get } from "./dom.js";
import { address, encode, shareable, token } from "./link.js";
import { compose, HEIGHT, WIDTH } from "./picture.js";
import { state } from "./state.js";

/** @typedef {import("./connection.js").Connection} Connection */
/** @typedef {import("./panel.js").Panel} Panel */

const SECONDS = 5;
const RATE = 20; // frames a second, as many as the server sends

/** @param {Blob} blob @param {string} name */
function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** @param {number} scale */
function canvas(scale) {
  const element = document.createElement("canvas");
  element.width = WIDTH * scale;
  element.height = HEIGHT * scale;
  const context = /** @type {CanvasRenderingContext2D} */ (element.getContext("2d", { alpha: false }));
  context.scale(scale, scale);
  return { element, context };
}

export class ShareDialog {
  /** @param {Connection} connection @param {Record<string, Panel>} panels @param {() => import("./types.js").Settings | null} settings */
  constructor(connection, panels, settings) {
    this.connection = connection;
    this.panels = panels;
    this.settings = settings;
    this.asked = 0;
    /** @type {HTMLDialogElement} */
    this.dialog = get("share-dialog");
    for (const radio of this.dialog.querySelectorAll('[name^="code-"]')) radio.addEventListener("change", () => this.code());
    for (const button of this.dialog.querySelectorAll("[data-copy]"))
      button.addEventListener("click", () => this.copy(/** @type {HTMLElement} */ (button)));
    get("save-picture").addEventListener("click", () => this.picture());
    get("save-film").addEventListener("click", () => this.film());
  }

  open() {
    const settings = this.settings();
    if (!settings) return;
    get("share-link").value = `${shareable()}#${encode(settings)}`;
    get("share-token").hidden = !token;
    for (const name of ["A", "B"]) {
      get(`save-${name}`).href = address(`run/${this.connection.session}/${name}.nc`).href;
      get(`save-${name}`).setAttribute("download", `${name}.nc`);
    }
    this.code();
    this.dialog.showModal();
  }

  async code() {
    const chosen = (/** @type {string} */ name) => this.dialog.querySelector(`[name="${name}"]:checked`)?.getAttribute("value");
    get("code-error").hidden = true;
    const asked = ++this.asked;
    try {
      const { text } = await this.connection.ask({ type: "code", run: chosen("code-run"), as: chosen("code-as") });
      if (asked === this.asked) get("share-code").value = text; // else something else was chosen in the meantime
    } catch (refusal) {
      if (!(refusal instanceof Refusal)) throw refusal;
      get("share-code").value = "";
      get("code-error").textContent = refusal.message;
      get("code-error").hidden = false;
    }
  }

  /** @param {HTMLElement} button */
  async copy(button) {
    const source = get(button.dataset.copy ?? "");
    try {
      await navigator.clipboard.writeText(source.value);
    } catch {
      source.select(); // there is no clipboard without https, but on this machine itself
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }

  picture() {
    const { element, context } = canvas(2);
    compose(context, this.panels);
    element.toBlob((blob) => blob && save(blob, `heatbath-${state.steps.A}.png`), "image/png");
  }

  film() {
    const button = get("save-film");
    const kind = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm"].find(
      (type) => typeof MediaRecorder !== "undefined" && MediaRecorder.isTypeSupported(type),
    );
    if (!kind) {
      get("share-status").textContent = "This browser cannot record WebM; take a picture, or another browser.";
      return;
    }
    const { element, context } = canvas(1);
    const recorder = new MediaRecorder(element.captureStream(RATE), { mimeType: kind, videoBitsPerSecond: 4_000_000 });
    /** @type {Blob[]} */
    const pieces = [];
    recorder.ondataavailable = ({ data }) => pieces.push(data);
    recorder.onstop = () => {
      save(new Blob(pieces, { type: "video/webm" }), `heatbath-${state.steps.A}.webm`);
      get("share-status").textContent = "The film is with your downloads.";
      button.setAttribute("aria-pressed", "false");
      button.disabled = false;
    };
    compose(context, this.panels);
    recorder.start();
    button.setAttribute("aria-pressed", "true");
    button.disabled = true;
    let left = SECONDS * RATE;
    const timer = setInterval(() => {
      compose(context, this.panels);
      get("share-status").textContent = `Recording: ${Math.ceil(left / RATE)} s left. Move what you like in the meantime.`;
      if (--left <= 0) {
        clearInterval(timer);
        recorder.stop();
      }
    }, 1000 / RATE);
  }
}
