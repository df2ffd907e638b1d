/** The colours in use. They stand in style.css, in light and dark; canvases read them from there. */

/** @typedef {Record<"ink" | "muted" | "line" | "panel" | "A" | "B" | "hot" | "cold" | "point0" | "point1" | "halo", string>} Ink */

/** @type {Ink | null} */
let ink = null;
/** @type {{classes: Uint32Array, doubt: Uint32Array} | null} */
let tables = null;

/** The colours for lines and text. @returns {Ink} */
export function colours() {
  if (ink) return ink;
  const style = getComputedStyle(document.documentElement);
  const of = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  ink = {
    ink: of("ink"),
    muted: of("muted"),
    line: of("line"),
    panel: of("panel"),
    A: of("run-a"),
    B: of("run-b"),
    hot: of("hot"),
    cold: of("cold"),
    point0: of("point-0"),
    point1: of("point-1"),
    halo: of("halo"),
  };
  return ink;
}

/** Colours of the 256 values of a map, as pixels: from class 0 to class 1, and from no doubt to the most. */
export function shades() {
  if (tables) return tables;
  const style = getComputedStyle(document.documentElement);
  const of = (/** @type {string} */ name) =>
    style
      .getPropertyValue(`--${name}`)
      .trim()
      .split(/\s+/)
      .map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  tables = { classes: table(of("map-classes")), doubt: table(of("map-doubt")) };
  return tables;
}

/**
 * 256 pixels along stops at equal distances.
 * @param {number[][]} stops
 */
function table(stops) {
  const pixels = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1);
    const k = Math.min(Math.floor(at), stops.length - 2);
    const [r, g, b] = [0, 1, 2].map((c) => Math.round(stops[k][c] + (at - k) * (stops[k + 1][c] - stops[k][c])));
    pixels[i] = (255 << 24) | (b << 16) | (g << 8) | r; // little-endian RGBA
  }
  return pixels;
}

/** Light or dark, by the system or by the switch, which is remembered. */
export const theme = {
  /** @type {Set<() => void>} */
  listeners: new Set(),

  get dark() {
    return document.documentElement.dataset.theme === "dark";
  },

  start() {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const choose = () => this.set(remembered() ?? (system.matches ? "dark" : "light"));
    system.addEventListener("change", choose);
    choose();
  },

  /** @param {string} name */
  set(name) {
    document.documentElement.dataset.theme = name;
    ink = tables = null;
    for (const listener of this.listeners) listener();
  },

  toggle() {
    const name = this.dark ? "light" : "dark";
    try {
      localStorage.setItem("heatbath-theme", name);
    } catch {
      // a notebook's frame may have no storage: the choice then lasts as long as the page
    }
    this.set(name);
  },
};

function remembered() {
  try {
    return localStorage.getItem("heatbath-theme");
  } catch {
    return null;
  }
}
