/** Curves over steps, histograms, and the loss on lines: drawn on any canvas, that of the page or of a picture. */

import { colours } from "./colours.js";
import { percent, power, pretty, short } from "./format.js";
import { FONT } from "./surface.js";
import { initial } from "./thermometer.js";

/** @typedef {CanvasRenderingContext2D} Context */
/** @typedef {import("./types.js").Series} Series */
/** @typedef {{x: number[], y: Series, colour: string, width?: number, dash?: number[], alpha?: number}} Curve */
/** @typedef {{low: number, high: number}} Range */
/** @typedef {{at: number, text: string}} Tick */

const WIDE = 38; // room for the numbers of an axis
const NARROW = 28;
const RIGHT = 8;
const TOP = 6;
const BOTTOM = 18;

/**
 * @param {Series[]} all
 * @returns {Range | null}
 */
function extent(all, positive = false) {
  let [low, high] = [Infinity, -Infinity];
  for (const series of all)
    for (const value of series) {
      if (value === null || !Number.isFinite(value) || (positive && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  return low <= high ? { low, high } : null;
}

/** Round numbers on a linear axis. @param {Range} range @returns {Tick[]} */
function linearTicks({ low, high }, most = 4) {
  const rough = (high - low) / most;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * ([1, 2, 5, 10].find((m) => m * unit >= rough) ?? 10);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) {
    ticks.push({ at: k * step, text: pretty(Number((k * step).toPrecision(6))) });
  }
  return ticks;
}

/** Powers of ten, or 1, 2, 5 where there are few. @param {Range} range @returns {Tick[]} */
function logTicks({ low, high }, most = 5) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const stride = Math.max(1, Math.ceil((last - first) / most));
  const span = Math.log10(high / low);
  const mantissas = span < 1.4 ? [1, 2, 5] : span < 2.6 ? [1, 3] : [1];
  const ticks = [];
  for (let e = first; e <= last; e += stride)
    for (const m of mantissas) {
      const at = m * 10 ** e;
      if (at < low * 0.999 || at > high * 1.001) continue;
      ticks.push({ at, text: e >= -3 && e <= 3 ? String(Number(at.toPrecision(3))) : m === 1 ? power(e) : `${m}·${power(e)}` });
    }
  return ticks;
}

/**
 * Curves over steps, on a logarithmic axis.
 * @param {Context} g
 * @param {number} width
 * @param {number} height
 * @param {Curve[]} curves
 * @param {{scale: "log" | "linear" | "percent", empty?: string, floor?: number, pointer?: number | null}} options
 *   floor: nothing below it is shown; pointer: where values are read off, in pixels from the left
 */
export function drawCurves(g, width, height, curves, { scale, empty = "", floor = -Infinity, pointer = null }) {
  const ink = colours();
  const left = width < 200 ? NARROW : WIDE;
  const log = scale === "log";
  const last = Math.max(10, ...curves.map(({ x }) => x[x.length - 1] ?? 0));
  const found = extent(curves.map((c) => c.y), log);
  if (!found) {
    frame(g, width, height, empty);
    return;
  }
  const y = padded({ low: Math.max(found.low, Math.min(floor, found.high)), high: found.high }, log, scale);
  const right = width - RIGHT;
  const bottom = height - BOTTOM;
  const decades = Math.log10(last);
  const px = (/** @type {number} */ step) => left + (Math.log10(Math.max(step, 1)) / decades) * (right - left);
  const [base, span] = log ? [Math.log10(y.low), Math.log10(y.high / y.low)] : [y.low, y.high - y.low];
  const py = (/** @type {number} */ v) =>
    bottom - (((log ? Math.log10(Math.max(v, y.low / 10)) : v) - base) / span) * (bottom - TOP);

  g.font = `10px ${FONT}`;
  g.lineWidth = 1;
  const rows = Math.max(2, Math.floor((bottom - TOP) / 26));
  const yTicks = log ? logTicks(y, rows) : linearTicks(y, rows);
  g.textAlign = "right";
  g.textBaseline = "middle";
  for (const { at, text } of yTicks) {
    const v = Math.round(py(at)) + 0.5;
    g.strokeStyle = ink.line;
    line(g, left, v, right, v);
    g.fillStyle = ink.muted;
    g.fillText(scale === "percent" ? `${Math.round(100 * at)} %` : text, left - 5, v);
  }
  g.textAlign = "center";
  g.textBaseline = "top";
  for (let e = 0, stride = decades > 5 ? 2 : 1; e <= decades + 1e-9; e += stride) {
    const v = Math.round(px(10 ** e)) + 0.5;
    g.strokeStyle = ink.line;
    line(g, v, TOP, v, bottom);
    g.fillStyle = ink.muted;
    g.fillText(short(10 ** e), Math.min(v, right - 6), bottom + 5);
  }
  g.save();
  g.beginPath();
  g.rect(left, TOP - 2, right - left + 2, bottom - TOP + 4);
  g.clip();
  g.lineJoin = "round";
  for (const { x, y: values, colour, width: thick = 1.75, dash = [], alpha = 1 } of curves) {
    g.globalAlpha = alpha;
    g.strokeStyle = colour;
    g.lineWidth = thick;
    g.setLineDash(dash);
    path(g, x, values, px, py);
    g.setLineDash([]);
    const end = values.length - 1;
    const value = values[end];
    if (dash.length === 0 && value !== null && Number.isFinite(value)) {
      g.fillStyle = colour;
      g.beginPath();
      g.arc(px(x[end]), py(value), 2.75, 0, 2 * Math.PI);
      g.fill();
    }
  }
  g.restore();
  if (pointer === null || pointer < left || pointer > right) return;
  const step = 10 ** (((pointer - left) / (right - left)) * decades);
  g.strokeStyle = ink.muted;
  g.lineWidth = 1;
  line(g, pointer, TOP, pointer, bottom);
  const read = curves
    .filter(({ dash = [] }) => dash.length === 0)
    .map(({ x, y: values, colour }) => {
      const place = nearest(x, step);
      return { step: x[place], value: values[place] ?? NaN, colour };
    });
  g.font = `600 11px ${FONT}`;
  const texts = [
    { text: short(Math.round(read[0]?.step ?? step)), colour: ink.muted },
    ...read.map(({ value, colour }) => ({ text: scale === "percent" ? percent(value) : pretty(value), colour })),
  ];
  const room = Math.max(...texts.map(({ text }) => g.measureText(text).width)) + 12;
  const x = pointer + room + 6 < right ? pointer + 6 : pointer - room - 6;
  g.fillStyle = ink.panel;
  g.strokeStyle = ink.line;
  g.beginPath();
  g.rect(x, TOP + 2, room, 15 * texts.length + 6);
  g.fill();
  g.stroke();
  g.textAlign = "left";
  g.textBaseline = "top";
  texts.forEach(({ text, colour }, i) => {
    g.fillStyle = colour;
    g.fillText(text, x + 6, TOP + 7 + 15 * i);
  });
}

/** The index of the step that is nearest on a logarithmic axis. @param {number[]} steps @param {number} step */
function nearest(steps, step) {
  let best = 0;
  const far = (/** @type {number} */ i) => Math.abs(Math.log(Math.max(steps[i], 1) / step));
  for (let i = 1; i < steps.length; i++) if (far(i) < far(best)) best = i;
  return best;
}

/**
 * A line through what is finite, with gaps where nothing is.
 * @param {Context} g
 * @param {number[]} x
 * @param {Series} y
 * @param {(v: number) => number} px
 * @param {(v: number) => number} py
 */
function path(g, x, y, px, py) {
  g.beginPath();
  let open = false;
  for (let i = 0; i < x.length; i++) {
    const value = y[i];
    if (value === null || value === undefined || !Number.isFinite(value)) open = false;
    else if (open) g.lineTo(px(x[i]), py(value));
    else {
      g.moveTo(px(x[i]), py(value));
      open = true;
    }
  }
  g.stroke();
}

/** @param {Range} range @param {boolean} log @param {string} scale */
function padded({ low, high }, log, scale) {
  if (scale === "percent") return { low: Math.min(0.45, low - 0.02), high: Math.max(1, high) };
  if (log) {
    const least = high / low < 2 ? 1.5 : 1.15;
    return { low: low / least, high: high * least };
  }
  const room = Math.max(0.1 * (high - low), 1e-3 * Math.max(Math.abs(low), Math.abs(high)), 1e-9);
  return { low: low - room, high: high + room };
}

/** @param {Context} g @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 */
function line(g, x0, y0, x1, y1) {
  g.beginPath();
  g.moveTo(x0, y0);
  g.lineTo(x1, y1);
  g.stroke();
}

/** An empty chart that says why. @param {Context} g @param {number} width @param {number} height @param {string} text */
function frame(g, width, height, text) {
  const ink = colours();
  const left = width < 200 ? 8 : WIDE;
  g.strokeStyle = ink.line;
  g.lineWidth = 1;
  g.strokeRect(left + 0.5, TOP + 0.5, width - left - RIGHT, height - TOP - BOTTOM);
  g.fillStyle = ink.muted;
  g.font = `11px ${FONT}`;
  g.textAlign = "center";
  g.textBaseline = "middle";
  wrapped(g, text, (left + width - RIGHT) / 2, (TOP + height - BOTTOM) / 2, width - left - RIGHT - 12, 14);
}

/** @param {Context} g @param {string} text @param {number} x @param {number} y @param {number} room @param {number} leading */
export function wrapped(g, text, x, y, room, leading) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines[lines.length - 1] ? `${lines[lines.length - 1]} ${word}` : word;
    if (g.measureText(longer).width <= room || !lines[lines.length - 1]) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  lines.forEach((part, i) => g.fillText(part, x, y + (i - (lines.length - 1) / 2) * leading));
}

/**
 * Histograms of the weights of parts side by side, each on a scale of its own; counts are logarithmic.
 * @param {Context} g
 * @param {number} width
 * @param {number} height
 * @param {{name: string, data: import("./types.js").Histogram}[]} parts
 * @param {string} colour
 */
export function drawHistograms(g, width, height, parts, colour) {
  const ink = colours();
  if (!parts.length) {
    frame(g, width, height, "");
    return;
  }
  const room = width / parts.length;
  const bottom = height - BOTTOM;
  parts.forEach(({ name, data }, place) => {
    const [left, right] = [place * room + 5, (place + 1) * room - 5];
    const px = (/** @type {number} */ v) => left + ((v - data.low) / (data.high - data.low || 1)) * (right - left);
    const most = Math.log1p(Math.max(1, ...data.counts));
    const step = (data.high - data.low) / data.counts.length;
    g.fillStyle = colour;
    g.globalAlpha = 0.75;
    g.beginPath();
    data.counts.forEach((count, i) => {
      const top = (Math.log1p(count) / most) * (bottom - TOP - 9);
      const [from, to] = [px(data.low + i * step), px(data.low + (i + 1) * step)];
      if (count) g.rect(from, bottom - top, to - from + 0.3, top);
    });
    g.fill();
    g.globalAlpha = 1;
    g.strokeStyle = ink.muted;
    g.lineWidth = 1;
    line(g, left, bottom + 0.5, right, bottom + 0.5);
    line(g, px(0), bottom, px(0), bottom + 4);
    g.fillStyle = ink.muted;
    g.font = `9.5px ${FONT}`;
    g.textBaseline = "top";
    g.textAlign = "left";
    g.fillText(room < 44 ? initial(name) : name, left, TOP - 4);
    g.textAlign = "center";
    g.fillText(`±${pretty(data.high)}`, (left + right) / 2, bottom + 6);
  });
}

/**
 * The loss on the way from the start to A, on to B, and back to the start.
 * @param {Context} g
 * @param {number} width
 * @param {number} height
 * @param {Record<string, import("./types.js").Line>} lines
 */
export function drawLines(g, width, height, lines) {
  const ink = colours();
  const legs = [
    { line: lines["start-A"], names: ["start", "A"], colour: ink.A, back: false },
    { line: lines["A-B"], names: ["A", "B"], colour: ink.ink, back: false },
    { line: lines["start-B"], names: ["B", "start"], colour: ink.B, back: true },
  ];
  const between = (/** @type {number} */ at) => at >= -1e-9 && at <= 1 + 1e-9; // not beyond the ends
  const y = extent(legs.flatMap(({ line: l }) => (l ? [l.train, l.test].map((loss) => loss.filter((_, k) => between(l.at[k]))) : [])), true);
  if (!y) {
    frame(g, width, height, "");
    return;
  }
  const range = padded(y, true, "log");
  const [right, bottom] = [width - RIGHT - 8, height - BOTTOM];
  const third = (right - WIDE) / 3;
  const span = Math.log10(range.high / range.low);
  const py = (/** @type {number} */ v) => bottom - (Math.log10(v / range.low) / span) * (bottom - TOP);
  g.font = `10px ${FONT}`;
  g.textBaseline = "middle";
  g.textAlign = "right";
  g.lineWidth = 1;
  for (const { at, text } of logTicks(range, Math.max(2, Math.floor((bottom - TOP) / 26)))) {
    g.strokeStyle = ink.line;
    line(g, WIDE, py(at), right, py(at));
    g.fillStyle = ink.muted;
    g.fillText(text, WIDE - 5, py(at));
  }
  g.textAlign = "center";
  g.textBaseline = "top";
  legs.forEach(({ line: leg, names, colour, back }, i) => {
    const from = WIDE + i * third;
    g.strokeStyle = ink.muted;
    g.lineWidth = 1;
    line(g, from, TOP, from, bottom);
    g.fillStyle = ink.ink;
    g.font = `600 11px ${FONT}`;
    g.fillText(names[0], from + (i ? 0 : 10), bottom + 4);
    if (i === 2) {
      line(g, right, TOP, right, bottom);
      g.fillText(names[1], right - 6, bottom + 4);
    }
    if (!leg) return;
    const px = (/** @type {number} */ at) => from + (back ? 1 - at : at) * third;
    g.strokeStyle = colour;
    for (const [values, thick, dash, alpha] of /** @type {[number[], number, number[], number][]} */ ([
      [leg.train, 1.25, [4, 3], 0.9],
      [leg.test, 2, [], 1],
    ])) {
      g.lineWidth = thick;
      g.globalAlpha = alpha;
      g.setLineDash(dash);
      path(g, leg.at, values.map((v, k) => (v > 0 && between(leg.at[k]) ? v : null)), px, py);
    }
    g.setLineDash([]);
    g.globalAlpha = 1;
  });
}
