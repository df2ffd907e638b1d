/** Numbers as they are printed and typed. */

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** @param {number} exponent */
export function power(exponent) {
  const digits = String(Math.abs(exponent)).replace(/\d/g, (d) => SUPERSCRIPTS[Number(d)]);
  return `10${exponent < 0 ? "⁻" : ""}${digits}`;
}

/**
 * 0.04 and 250 with their digits, others with a power of ten, as in the pictures of the project.
 * @param {number | null | undefined} value
 */
export function pretty(value, digits = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "-∞";
  if (value === 0 || (Math.abs(value) > 0.01 && Math.abs(value) < 1e4)) return String(Number(value.toPrecision(digits + 1)));
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  const factor = Number(mantissa) === 1 ? "" : `${Number(mantissa)}·`;
  return factor + power(Number(exponent));
}

/**
 * As it can be typed: 0.0001 is 1e-4, infinity is inf.
 * @param {import("./types.js").Value | null | undefined} value
 */
export function typed(value) {
  if (value === null || value === undefined) return "";
  if (value === "inf" || value === Infinity) return "inf";
  const number = Number(value);
  if (number !== 0 && (Math.abs(number) < 1e-3 || Math.abs(number) >= 1e5)) {
    return number.toExponential().replace("e+", "e");
  }
  return String(number);
}

/**
 * What was typed, or null if it is no number that could be meant.
 * @param {string} text
 * @returns {import("./types.js").Value | null}
 */
export function parsed(text) {
  const plain = text.trim().toLowerCase().replace("∞", "inf");
  if (plain === "inf" || plain === "infinity") return "inf";
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/.test(plain)) return null;
  const number = Number(plain);
  return Number.isFinite(number) ? number : null;
}

/** @param {number} steps */
export function thousands(steps) {
  return Math.round(steps).toLocaleString("en-GB");
}

/** 1, 10, 1k, 10k, 1M: for the axis of steps. @param {number} steps */
export function short(steps) {
  if (steps >= 1e6) return `${Number((steps / 1e6).toPrecision(3))}M`;
  return steps >= 1e3 ? `${Number((steps / 1e3).toPrecision(3))}k` : String(steps);
}

/** @param {number} share */
export function percent(share) {
  return Number.isFinite(share) ? `${(100 * share).toFixed(1)} %` : "–";
}
