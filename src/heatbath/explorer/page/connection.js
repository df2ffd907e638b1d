/** The socket: requests with their answers, frames with their acknowledgements, and reconnecting. */

import { address } from "./link.js";

/** @typedef {import("./types.js").Frame} Frame */
/** @typedef {Record<string, any> & {type: string}} Message */

const MAGIC = 0x31464248; // "HBF1", little-endian
const HEADER = 64;
const FIRST_WAIT = 400; // ms before the first attempt to reconnect; each later one waits twice as long
const LONGEST_WAIT = 5000;
const CALM = 500; // ms between frames where the system asks for less motion
const still = matchMedia("(prefers-reduced-motion: reduce)");

/** What the server refused: what was given, what is accepted, what to do. */
export class Refusal extends Error {
  /** @param {string} text @param {string} [field] */
  constructor(text, field) {
    super(text);
    this.field = field;
  }
}

/**
 * @param {ArrayBuffer} buffer
 * @returns {Frame}
 */
export function parseFrame(buffer) {
  const view = new DataView(buffer);
  if (buffer.byteLength < HEADER || view.getUint32(0, true) !== MAGIC) throw new Error("a frame without its mark");
  const [width, height] = [view.getUint32(8, true), view.getUint32(12, true)];
  if (buffer.byteLength !== HEADER + 2 * width * height) throw new Error("a frame of the wrong length");
  /** @param {number} run */
  const of = (run) => {
    const at = (/** @type {number} */ i) => view.getFloat32(32 + 16 * run + 4 * i, true);
    return {
      step: view.getFloat64(16 + 8 * run, true),
      loss: { train: at(0), test: at(1) },
      accuracy: { train: at(2), test: at(3) },
      map: new Uint8Array(buffer, HEADER + run * width * height, width * height),
    };
  };
  return { number: view.getUint32(4, true), width, height, runs: { A: of(0), B: of(1) } };
}

export class Connection {
  /**
   * @param {object} handlers
   * @param {(message: Message) => void} handlers.message
   * @param {(frame: Frame) => void} handlers.frame
   * @param {(state: "open" | "lost" | "refused", text?: string) => void} handlers.status
   */
  constructor(handlers) {
    this.handlers = handlers;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.session = "";
    /** Characters of messages that are accepted. */
    this.most = { setup: Infinity, other: Infinity };
    this.id = 0;
    this.wait = FIRST_WAIT;
    this.over = false;
    this.painting = 0; // a frame that waits for the browser
    /** @type {Map<number, {resolve: (m: Message) => void, reject: (e: Error) => void}>} */
    this.asked = new Map();
    document.addEventListener("visibilitychange", () => this.send({ type: document.hidden ? "hide" : "show" }));
    this.open();
  }

  open() {
    const url = address("socket", this.session ? { session: this.session } : {});
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onopen = () => {
      this.wait = FIRST_WAIT;
      this.handlers.status("open");
      if (document.hidden) this.send({ type: "hide" });
    };
    socket.onmessage = ({ data }) => {
      if (data instanceof ArrayBuffer) {
        const frame = parseFrame(data);
        // Drawn when the browser paints, and only then is the next one asked for.
        this.painting = requestAnimationFrame(() => {
          this.handlers.frame(frame);
          setTimeout(() => this.send({ type: "ready", frame: frame.number }), still.matches ? CALM : 0);
        });
      } else this.receive(JSON.parse(data));
    };
    socket.onclose = ({ code, reason }) => {
      if (this.socket !== socket) return;
      for (const { reject } of this.asked.values()) reject(new Refusal("The connection was lost before the answer came."));
      this.asked.clear();
      if (this.over) return;
      if (code === 1008) {
        this.handlers.status("refused", reason);
        return;
      }
      this.handlers.status("lost");
      setTimeout(() => this.open(), this.wait);
      this.wait = Math.min(2 * this.wait, LONGEST_WAIT);
    };
  }

  /** Stop for good: the server is full. */
  end() {
    this.over = true;
    this.socket?.close();
  }

  /** @param {Message} message */
  receive(message) {
    if (message.type === "ready") cancelAnimationFrame(this.painting); // it is of the runs before
    if (message.type === "hello") [this.session, this.most] = [message.session, message.limits.bytes];
    const asked = typeof message.id === "number" ? this.asked.get(message.id) : undefined;
    if (asked) {
      this.asked.delete(message.id);
      if (message.type === "error") asked.reject(new Refusal(message.text, message.field));
      else asked.resolve(message);
    }
    if (!(asked && message.type === "error")) this.handlers.message(message);
  }

  get connected() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  /** @param {Message} message */
  send(message) {
    if (this.connected) this.socket?.send(JSON.stringify(message));
  }

  /**
   * Send and wait for the answer; a refusal is thrown.
   * @param {Message} message
   * @returns {Promise<Message>}
   */
  ask(message) {
    if (!this.connected) return Promise.reject(new Refusal("There is no connection to the server at the moment."));
    const id = ++this.id;
    const text = JSON.stringify({ ...message, id });
    const [most, field] = message.type === "setup" ? [this.most.setup, "problem.text"] : [this.most.other, undefined];
    if (text.length > most) {
      // A table of quotes is twice as long when it is sent.
      const refusal = `This takes ${text.length} characters to send; accepted are up to ${most}. Take fewer rows or points.`;
      return Promise.reject(new Refusal(refusal, field));
    }
    return new Promise((resolve, reject) => {
      this.asked.set(id, { resolve, reject });
      this.socket?.send(text);
    });
  }
}
