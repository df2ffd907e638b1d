/** A thermometer: the kinetic temperature as its column, the configurational one beside it, the target across. */

import { colours } from "./colours.js";
import { power, pretty } from "./format.js";
import { FONT } from "./surface.js";

/**
 * @typedef {object} Reading
 * @property {string} part
 * @property {import("./types.js").Name} run
 * @property {boolean} thermal whether the method of this part has a temperature at all
 * @property {number | null} kinetic
 * @property {number | null} configurational
 * @property {number | null} target
 * @property {boolean} first whether it has numbers beside it, where there is room for those of one only
 */

const USUAL = [-7, -1]; // decades shown unless a reading lies beyond them
const HOT = 2; // a reading this many times its target is called hot, one below the inverse cold

/** @param {number | null} value */
const shown = (value) => value !== null && Number.isFinite(value) && value > 0;

/**
 * @param {CanvasRenderingContext2D} g
 * @param {number} width
 * @param {number} height
 * @param {Reading} reading
 */
export function drawThermometer(g, width, height, { part, run, thermal, kinetic, configurational, target, first }) {
  const ink = colours();
  const readings = [kinetic, configurational, target].filter(shown).map((v) => Math.log10(Number(v)));
  const low = Math.max(-12, Math.min(USUAL[0], ...readings.map(Math.floor)));
  const high = Math.min(6, Math.max(USUAL[1], ...readings.map(Math.ceil)));
  const [bulb, tube] = [9, 4.5];
  const top = 20;
  const bottom = height - 44;
  const slim = width < 62;
  const x = Math.round(slim ? (first ? width - 18 : width / 2) : width * 0.52);
  const middle = slim ? x : width / 2;
  const y = (/** @type {number} */ value) => {
    const share = (Math.log10(value) - low) / (high - low);
    return bottom - 6 - Math.max(0, Math.min(1, share)) * (bottom - 6 - top);
  };

  g.textAlign = "center";
  g.textBaseline = "top";
  g.fillStyle = ink.ink;
  g.font = `600 ${slim ? 10 : 11}px ${FONT}`;
  g.fillText(slim ? initial(part) : part, middle, 1);

  g.font = `9.5px ${FONT}`;
  g.textAlign = "right";
  g.textBaseline = "middle";
  g.lineWidth = 1;
  const stride = (bottom - top) / (high - low) < 13 ? 2 : 1;
  for (let e = low; e <= high; e++) {
    const at = Math.round(y(10 ** e)) + 0.5;
    g.strokeStyle = ink.line;
    g.beginPath();
    g.moveTo(x - 10, at);
    g.lineTo(x + 10, at);
    g.stroke();
    g.fillStyle = ink.muted;
    if ((high - e) % stride === 0 && (first || !slim)) g.fillText(power(e), x - 13, at);
  }

  // the glass
  g.fillStyle = ink.panel;
  g.strokeStyle = ink.muted;
  g.beginPath();
  g.arc(x, top - 1, tube, Math.PI, 0);
  g.lineTo(x + tube, bottom);
  g.arc(x, bottom + bulb - 3, bulb, -Math.PI / 3, (4 * Math.PI) / 3);
  g.closePath();
  g.fill();
  g.stroke();

  const hot = shown(kinetic) && shown(target) && Number(kinetic) > HOT * Number(target);
  const cold = shown(kinetic) && shown(target) && Number(kinetic) < Number(target) / HOT;
  g.fillStyle = hot || (target === 0 && shown(kinetic)) ? ink.hot : cold ? ink.cold : ink[run];
  if (thermal && shown(kinetic)) {
    const level = y(Number(kinetic));
    g.fillRect(x - tube + 2, level, 2 * tube - 4, bottom - level + 2);
    g.beginPath();
    g.arc(x, bottom + bulb - 3, bulb - 2.5, 0, 2 * Math.PI);
    g.fill();
  }
  if (shown(configurational)) {
    const level = y(Number(configurational));
    g.strokeStyle = ink.ink;
    g.fillStyle = ink.panel;
    g.lineWidth = 1.5;
    g.beginPath();
    g.moveTo(x + 8, level);
    g.lineTo(x + 13, level - 5);
    g.lineTo(x + 18, level);
    g.lineTo(x + 13, level + 5);
    g.closePath();
    g.fill();
    g.stroke();
  }
  if (shown(target)) {
    const level = Math.round(y(Number(target))) + 0.5;
    g.strokeStyle = g.fillStyle = ink.hot;
    g.lineWidth = 2;
    g.beginPath();
    g.moveTo(x - 9, level);
    g.lineTo(x + (slim ? 12 : 22), level);
    g.stroke();
    g.font = `italic 600 12px ${FONT}`;
    g.textAlign = "left";
    if (!slim) g.fillText("τ", x + 25, level);
  }

  g.textAlign = "center";
  g.textBaseline = "alphabetic";
  g.font = `600 ${slim ? 9 : 11}px ${FONT}`;
  g.fillStyle = ink.ink;
  g.fillText(thermal ? pretty(kinetic, slim ? 1 : 2) : "no bath", middle, height - 14);
  g.font = `${slim ? 9 : 10}px ${FONT}`;
  g.fillStyle = ink.muted;
  g.fillText(slim ? pretty(configurational, 1) : `◇ ${pretty(configurational)}`, middle, height - 2);
}

/** hidden2 is h2 where there is little room. @param {string} part */
export function initial(part) {
  return part.replace(/^hidden/, "h").replace(/^output$/, "out");
}

/** The same in words. @param {Reading} reading */
export function described({ part, thermal, kinetic, configurational, target }) {
  if (!thermal) return `Thermometer of ${part}: its method has no temperature; configurational ${pretty(configurational)}`;
  return `Thermometer of ${part}: kinetic ${pretty(kinetic)}, configurational ${pretty(configurational)}, target ${pretty(target)}`;
}
