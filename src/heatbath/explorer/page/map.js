/** A classifier map: what the networks say, the hidden units as lines, and the data, each on a layer of its own. */

import { colours, shades, theme } from "./colours.js";
import { pretty } from "./format.js";
import { FONT, Surface } from "./surface.js";

/** @typedef {import("./types.js").Point} Point */
/** @typedef {[number, number, number, number]} Domain */
/** @typedef {CanvasRenderingContext2D} Context */

/**
 * The data: class 0 as discs, class 1 as squares, so that they differ by more than their colour.
 * @param {Context} g
 * @param {number} width
 * @param {number} height
 * @param {Point[]} points
 * @param {Domain} domain
 */
export function drawPoints(g, width, height, points, [x0, x1, y0, y1]) {
  const ink = colours();
  const radius = Math.max(1.1, Math.min(4, (0.2 * Math.min(width, height)) / Math.sqrt(points.length || 1)));
  g.lineWidth = Math.min(1, 0.22 * radius);
  g.strokeStyle = ink.halo;
  for (const wanted of [0, 1]) {
    g.fillStyle = wanted ? ink.point1 : ink.point0;
    g.beginPath();
    for (const [x, y, label] of points) {
      if (label !== wanted) continue;
      const px = ((x - x0) / (x1 - x0)) * width;
      const py = ((y1 - y) / (y1 - y0)) * height;
      if (wanted) g.rect(px - 0.9 * radius, py - 0.9 * radius, 1.8 * radius, 1.8 * radius);
      else {
        g.moveTo(px + radius, py);
        g.arc(px, py, radius, 0, 2 * Math.PI);
      }
    }
    g.fill();
    g.stroke();
  }
}

/**
 * Where each hidden unit switches, in the colour of the class that it speaks for.
 * @param {Context} g
 * @param {number} width
 * @param {number} height
 * @param {import("./types.js").Unit[]} units
 * @param {Domain} domain
 */
export function drawUnits(g, width, height, units, [x0, x1, y0, y1]) {
  const ink = colours();
  const [sx, sy] = [width / (x1 - x0), height / (y1 - y0)];
  for (const [w1, w2, b, v] of units) {
    // w·x + b = 0 in pixels: a px + c py + d = 0
    const [a, c] = [w1 / sx, -w2 / sy];
    const d = b + w1 * x0 + w2 * y1;
    const norm = Math.hypot(a, c);
    if (!(norm > 0)) continue;
    const [nx, ny, distance] = [a / norm, c / norm, -d / norm];
    const far = width + height;
    g.globalAlpha = 0.15 + 0.75 * Math.min(1, Math.abs(v));
    g.strokeStyle = v > 0 ? ink.point1 : ink.point0;
    g.lineWidth = 0.6 + 1.4 * Math.min(1, Math.abs(v));
    g.beginPath();
    g.moveTo(nx * distance - ny * far, ny * distance + nx * far);
    g.lineTo(nx * distance + ny * far, ny * distance - nx * far);
    g.stroke();
  }
  g.globalAlpha = 1;
}

/** The ends of the axes, in the corners. @param {Context} g @param {number} width @param {number} height @param {Domain} domain */
export function drawCorners(g, width, height, [x0, x1, y0, y1]) {
  const ink = colours();
  g.font = `10px ${FONT}`;
  g.lineWidth = 3;
  g.strokeStyle = ink.halo;
  g.fillStyle = ink.ink;
  g.lineJoin = "round";
  /** @param {string} text @param {number} x @param {number} y @param {CanvasTextAlign} align @param {CanvasTextBaseline} base */
  const put = (text, x, y, align, base) => {
    g.textAlign = align;
    g.textBaseline = base;
    g.globalAlpha = 0.8;
    g.strokeText(text, x, y);
    g.globalAlpha = 1;
    g.fillText(text, x, y);
  };
  put(pretty(x0, 1), 18, height - 4, "left", "alphabetic");
  put(pretty(x1, 1), width - 4, height - 4, "right", "alphabetic");
  put("x₁", width / 2, height - 4, "center", "alphabetic");
  put(pretty(y1, 1), 4, 4, "left", "top");
  put(pretty(y0, 1), 4, height - 18, "left", "alphabetic");
  put("x₂", 4, height / 2, "left", "middle");
}

export class MapView {
  /** @param {HTMLElement} root with three canvases: .values, .units, .points */
  constructor(root) {
    const canvas = (/** @type {string} */ name) =>
      /** @type {HTMLCanvasElement} */ (root.querySelector(`canvas.${name}`));
    this.values = canvas("values");
    this.context = /** @type {Context} */ (this.values.getContext("2d", { alpha: false }));
    /** @type {ImageData | null} */
    this.image = null;
    /** @type {Uint32Array} */
    this.pixels = new Uint32Array(0);
    /** @type {Uint8Array | null} */
    this.last = null;
    /** @type {"classes" | "doubt"} */
    this.kind = "classes";
    /** @type {Domain} */
    this.domain = [-1, 1, -1, 1];
    /** @type {Point[]} */
    this.data = [];
    /** @type {import("./types.js").Unit[]} */
    this.lines = [];
    this.points = new Surface(canvas("points"), (g, width, height) => {
      drawPoints(g, width, height, this.data, this.domain);
      drawCorners(g, width, height, this.domain);
    });
    this.units = new Surface(canvas("units"), (g, width, height) => {
      this.units.canvas.style.visibility = this.lines.length ? "" : "hidden"; // an empty layer costs as much as a full one
      drawUnits(g, width, height, this.lines, this.domain);
    });
    theme.listeners.add(() => this.recolour());
    this.empty();
  }

  /**
   * One image at its native size; the browser scales it.
   * @param {Uint8Array} values
   * @param {number} width
   * @param {number} height
   */
  show(values, width, height) {
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.values.width = width;
      this.values.height = height;
      this.image = this.context.createImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    const shade = shades()[this.kind];
    for (let i = 0; i < values.length; i++) this.pixels[i] = shade[values[i]];
    this.context.putImageData(this.image, 0, 0);
    this.last = values;
  }

  recolour() {
    if (this.last && this.image) this.show(this.last, this.image.width, this.image.height);
    else this.empty();
  }

  /** Paper, until there is a map. */
  empty() {
    this.context.fillStyle = colours().panel;
    this.context.fillRect(0, 0, this.values.width, this.values.height);
  }

  /** Nothing to show yet: what was seen was of other runs. */
  clear() {
    this.last = null;
    this.empty();
    this.lines = [];
    this.units.redraw();
  }
}
