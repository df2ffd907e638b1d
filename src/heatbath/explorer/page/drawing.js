/** Points drawn into the plane, by hand or by keyboard. */

import { colours } from "./colours.js";
import { drawPoints } from "./map.js";
import { Surface } from "./surface.js";

/** @typedef {import("./types.js").Point} Point */

/** @type {[number, number, number, number]} */
const PLANE = [-2, 2, -2, 2];
const APART = 0.07; // between points of one stroke
const SPREAD = 0.05; // around the stroke, so that a line is not drawn twice the same
const STRIDE = 0.1; // of the cross, for each press of an arrow

export class Drawing {
  /** @param {HTMLCanvasElement} canvas @param {() => 0 | 1} label @param {(points: Point[]) => void} changed @param {() => void} swap */
  constructor(canvas, label, changed, swap) {
    /** @type {Point[]} */
    this.points = [];
    this.most = 2000;
    this.changed = changed;
    this.cross = [0, 0];
    /** @type {number[]} */
    this.strokes = [];
    this.surface = new Surface(canvas, (g, width, height) => this.paint(g, width, height));
    /** @type {[number, number] | null} */
    let last = null;
    const where = (/** @type {PointerEvent} */ event) => {
      const box = canvas.getBoundingClientRect();
      const [x0, x1, y0, y1] = PLANE;
      return /** @type {[number, number]} */ ([
        x0 + ((event.clientX - box.left) / box.width) * (x1 - x0),
        y1 - ((event.clientY - box.top) / box.height) * (y1 - y0),
      ]);
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      last = where(event);
      this.strokes.push(this.points.length);
      this.add(last[0], last[1], label());
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!last) return;
      const [x, y] = where(event);
      const distance = Math.hypot(x - last[0], y - last[1]);
      const pieces = Math.floor(distance / APART);
      for (let i = 1; i <= pieces; i++) {
        const share = (i * APART) / distance;
        const off = () => SPREAD * (Math.random() + Math.random() - 1);
        this.add(last[0] + share * (x - last[0]) + off(), last[1] + share * (y - last[1]) + off(), label());
      }
      if (pieces) last = [x, y];
    });
    for (const end of ["pointerup", "pointercancel"])
      canvas.addEventListener(end, () => {
        last = null;
      });
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-STRIDE, 0], ArrowRight: [STRIDE, 0], ArrowUp: [0, STRIDE], ArrowDown: [0, -STRIDE] };
      if (event.key in moves) {
        const [dx, dy] = moves[/** @type {keyof moves} */ (event.key)];
        this.cross = [this.cross[0] + dx, this.cross[1] + dy].map((v) => Math.max(-2, Math.min(2, v)));
      } else if (event.key === "Enter" || event.key === " ") {
        this.strokes.push(this.points.length);
        this.add(this.cross[0], this.cross[1], label());
      } else if (event.key === "Delete" || event.key === "Backspace") this.undo();
      else if (event.key === "c" || event.key === "C") swap();
      else return;
      event.preventDefault();
      event.stopPropagation();
      this.surface.redraw();
    });
    canvas.addEventListener("focus", () => this.surface.redraw());
    canvas.addEventListener("blur", () => this.surface.redraw());
  }

  /** @param {number} x @param {number} y @param {0 | 1} label */
  add(x, y, label) {
    const inside = (/** @type {number} */ v) => Math.max(-2, Math.min(2, Number(v.toFixed(3))));
    if (this.points.length >= this.most) return;
    this.points.push([inside(x), inside(y), label]);
    this.tell();
  }

  undo() {
    this.points.length = Math.min(this.points.length, this.strokes.pop() ?? 0);
    this.tell();
  }

  clear() {
    this.points = [];
    this.strokes = [];
    this.tell();
  }

  /** @param {Point[]} points */
  load(points) {
    this.points = points.map(([x, y, label]) => [x, y, label]);
    this.strokes = [];
    this.tell();
  }

  tell() {
    this.surface.redraw();
    this.changed(this.points);
  }

  /** @param {CanvasRenderingContext2D} g @param {number} width @param {number} height */
  paint(g, width, height) {
    const ink = colours();
    g.strokeStyle = ink.line;
    g.lineWidth = 1;
    for (let i = 1; i < 4; i++) {
      g.beginPath();
      g.moveTo((i * width) / 4, 0);
      g.lineTo((i * width) / 4, height);
      g.moveTo(0, (i * height) / 4);
      g.lineTo(width, (i * height) / 4);
      g.stroke();
    }
    drawPoints(g, width, height, this.points, PLANE);
    if (document.activeElement === this.surface.canvas && this.surface.canvas.matches(":focus-visible")) {
      const [x, y] = [((this.cross[0] + 2) / 4) * width, ((2 - this.cross[1]) / 4) * height];
      g.strokeStyle = ink.ink;
      g.beginPath();
      g.moveTo(x - 8, y);
      g.lineTo(x + 8, y);
      g.moveTo(x, y - 8);
      g.lineTo(x, y + 8);
      g.stroke();
    }
    if (!this.points.length) {
      g.fillStyle = ink.muted;
      g.font = "13px system-ui, sans-serif";
      g.textAlign = "center";
      g.fillText("draw here", width / 2, height / 2 - 10);
    }
  }
}
