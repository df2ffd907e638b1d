/** The guided tour: a scene is settings and two sentences. */

import { get } from "./dom.js";
import { state } from "./state.js";

export class Tour {
  /** @param {(settings: import("./types.js").Settings) => Promise<unknown>} show */
  constructor(show) {
    this.show = show;
    this.place = -1;
    get("open-tour").addEventListener("click", () => (get("tour").hidden ? this.go(0) : this.close()));
    get("tour-next").addEventListener("click", () => this.go(this.place + 1));
    get("tour-close").addEventListener("click", () => this.close());
  }

  offer() {
    get("scenes").replaceChildren(
      ...(state.hello?.scenes ?? []).map(({ title }, place) => {
        const item = document.createElement("li");
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = String(place + 1);
        button.setAttribute("aria-label", `Scene ${place + 1}: ${title}`);
        button.title = title;
        button.addEventListener("click", () => this.go(place));
        item.append(button);
        return item;
      }),
    );
  }

  /** @param {number} place */
  async go(place) {
    const scenes = state.hello?.scenes ?? [];
    if (!scenes.length) return;
    this.place = place % scenes.length;
    const scene = scenes[this.place];
    get("tour").hidden = false;
    get("open-tour").setAttribute("aria-expanded", "true");
    get("scene-title").textContent = scene.title;
    get("scene-text").textContent = scene.text;
    get("tour-next").textContent = this.place + 1 === scenes.length ? "Again" : "Next";
    [...get("scenes").querySelectorAll("button")].forEach((button, i) => {
      if (i === this.place) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    });
    await this.show(scene.settings);
  }

  close() {
    get("tour").hidden = true;
    get("open-tour").setAttribute("aria-expanded", "false");
  }
}
