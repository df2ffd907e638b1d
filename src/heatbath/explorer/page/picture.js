/** Both maps and their curves on one canvas, as a picture or as a frame of a film. */

import { drawCurves } from "./chart.js";
import { colours } from "./colours.js";
import { percent, thousands } from "./format.js";
import { drawCorners, drawPoints, drawUnits } from "./map.js";
import { summary } from "./problem.js";
import { NAMES, state } from "./state.js";
import { FONT } from "./surface.js";

/** @typedef {import("./panel.js").Panel} Panel */

const MAP = 440;
const EDGE = 20;
const HEAD = 64;
const CURVES = 200;
const FOOT = 34;
export const WIDTH = 2 * MAP + 3 * EDGE;
export const HEIGHT = HEAD + MAP + EDGE + CURVES + FOOT;

/** The four curves of a quantity, test and train of both runs. @param {"loss" | "accuracy"} quantity */
export function curvesOf(quantity) {
  const ink = colours();
  return NAMES.flatMap((name) => {
    const trace = state.traces[name];
    if (!trace) return [];
    return [
      { x: trace.step, y: trace[quantity].train, colour: ink[name], width: 1.1, dash: [4, 3], alpha: 0.85 },
      { x: trace.step, y: trace[quantity].test, colour: ink[name], width: 2 },
    ];
  });
}

/** Under which losses are not shown: a training loss that falls to nothing would hide what the others do. */
export function lossFloor() {
  const tests = NAMES.flatMap((name) => state.traces[name]?.loss.test ?? []).filter((v) => v !== null && v > 0);
  return tests.length ? Math.max(Math.min(.../** @type {number[]} */ (tests)) / 10, 1e-4) : -Infinity;
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, Panel>} panels */
export function compose(g, panels) {
  const ink = colours();
  const settings = state.settings;
  if (!settings) return;
  g.fillStyle = ink.panel;
  g.fillRect(0, 0, WIDTH, HEIGHT);
  NAMES.forEach((name, place) => {
    const panel = panels[name];
    const x = EDGE + place * (MAP + EDGE);
    g.fillStyle = ink[name];
    g.beginPath();
    g.arc(x + 16, 34, 16, 0, 2 * Math.PI);
    g.fill();
    g.fillStyle = ink.panel;
    g.font = `700 17px ${FONT}`;
    g.textAlign = "center";
    g.textBaseline = "middle";
    g.fillText(name, x + 16, 35);
    g.fillStyle = ink.ink;
    g.textAlign = "left";
    g.font = `600 19px ${FONT}`;
    g.fillText(state.now?.[name].method ?? "", x + 42, 35);
    g.textAlign = "right";
    g.fillText(panel.test.textContent ?? "", x + MAP, 35);
    g.save();
    g.translate(x, HEAD);
    g.beginPath();
    g.rect(0, 0, MAP, MAP);
    g.clip();
    g.imageSmoothingEnabled = true;
    g.imageSmoothingQuality = "high";
    g.drawImage(panel.map.values, 0, 0, MAP, MAP);
    drawUnits(g, MAP, MAP, panel.map.lines, panel.map.domain);
    drawPoints(g, MAP, MAP, panel.map.data, panel.map.domain);
    drawCorners(g, MAP, MAP, panel.map.domain);
    g.restore();
  });
  /** @type {["loss" | "accuracy", "log" | "percent"][]} */
  const quantities = [["loss", "log"], ["accuracy", "percent"]];
  quantities.forEach(([quantity, scale], place) => {
    g.save();
    g.translate(EDGE + place * (MAP + EDGE), HEAD + MAP + EDGE);
    g.fillStyle = ink.ink;
    g.font = `600 12px ${FONT}`;
    g.textAlign = "left";
    g.textBaseline = "top";
    g.fillText(quantity, 0, 0);
    g.fillStyle = ink.muted;
    g.font = `11px ${FONT}`;
    g.textAlign = "right";
    g.fillText("test: line, train: dashed", MAP, 0);
    g.translate(0, 16);
    drawCurves(g, MAP, CURVES - 16, curvesOf(quantity), { scale, floor: quantity === "loss" ? lossFloor() : -Infinity });
    g.restore();
  });
  const { problem, network, training } = summary(settings);
  g.fillStyle = ink.muted;
  g.font = `12px ${FONT}`;
  g.textBaseline = "middle";
  g.textAlign = "left";
  g.fillText(`${problem} · ${network} · ${training} · step ${thousands(state.steps.A)}`, EDGE, HEIGHT - FOOT / 2);
  g.textAlign = "right";
  g.fillText("heatbath explorer", WIDTH - EDGE, HEIGHT - FOOT / 2);
}

/** In words, for the link's page and the maps' labels. @param {Panel} panel */
export function told(panel) {
  return `Map of run ${panel.name}, ${state.now?.[panel.name].method}: test accuracy ${panel.test.textContent ?? percent(NaN)} at step ${thousands(state.steps[panel.name])}`;
}
