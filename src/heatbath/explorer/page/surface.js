/** A canvas that is as sharp as the screen and redrawn once per painted frame at most. */

import { theme } from "./colours.js";

export class Surface {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {(context: CanvasRenderingContext2D, width: number, height: number) => void} draw in CSS pixels
   */
  constructor(canvas, draw) {
    this.canvas = canvas;
    this.draw = draw;
    this.width = this.height = 0;
    this.asked = false;
    const context = canvas.getContext("2d");
    if (!context) throw new Error("this browser has no canvas");
    this.context = context;
    this.observer = new ResizeObserver(([entry]) => {
      const { width, height } = entry.contentRect;
      this.width = Math.round(width);
      this.height = Math.round(height);
      const ratio = Math.min(devicePixelRatio || 1, 2);
      canvas.width = Math.max(1, Math.round(this.width * ratio));
      canvas.height = Math.max(1, Math.round(this.height * ratio));
      this.paint();
    });
    this.observer.observe(canvas);
    this.recolour = () => this.redraw();
    theme.listeners.add(this.recolour);
  }

  /** Its canvas leaves the page. */
  end() {
    this.observer.disconnect();
    theme.listeners.delete(this.recolour);
  }

  redraw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.paint();
    });
  }

  paint() {
    if (this.width < 8 || this.height < 8) return;
    const ratio = this.canvas.width / this.width;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, this.width, this.height);
    this.draw(this.context, this.width, this.height);
  }
}

export const FONT = '"Inter", system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif';
