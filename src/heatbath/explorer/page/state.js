/** What the page knows: settings, values in effect, traces; who wants to know is told. */

/** @typedef {import("./types.js").Name} Name */
/** @typedef {import("./types.js").Settings} Settings */
/** @typedef {import("./types.js").Change} Change */
/** @typedef {import("./types.js").Trace} Trace */

/** @type {Name[]} */
export const NAMES = ["A", "B"];

export const state = {
  /** @type {import("./types.js").Hello | null} */
  hello: null,
  /** @type {import("./types.js").Ready | null} */
  ready: null,
  /** With which the runs began, and their histories: this is what a link holds. @type {Settings | null} */
  settings: null,
  /** What holds now. @type {Record<Name, import("./types.js").Now> | null} */
  now: null,
  playing: false,
  /** @type {Record<Name, number>} */
  steps: { A: 0, B: 0 },
  /** @type {Partial<Record<Name, Trace>>} */
  traces: {},
};

/** @template T @param {T} value @returns {T} */
export const copy = (value) => (value === undefined ? value : JSON.parse(JSON.stringify(value)));

/** @param {import("./types.js").Ready} ready */
export function begin(ready) {
  state.ready = ready;
  state.settings = copy(ready.settings);
  const of = (/** @type {Name} */ name) => {
    const { method, h, parts, anneal = null } = copy(ready.settings.runs[name]);
    return { method, h, parts, anneal, heat: 1 };
  };
  state.now = { A: of("A"), B: of("B") };
  state.traces = {};
}

/** @param {Change} sooner @param {Change} later @returns {Change} */
function joined(sooner, later) {
  const parts = copy(sooner.parts ?? {});
  for (const [part, values] of Object.entries(later.parts ?? {})) parts[part] = { ...parts[part], ...values };
  return { ...sooner, ...later, ...(Object.keys(parts).length ? { parts } : {}) };
}

/** Whether a run goes on with it: another method, word or option begins a new phase, even if it is then taken back. @param {Change} change */
function onlyNumbers({ method, parts = {} }) {
  const values = Object.values(parts).flatMap((part) => Object.values(part));
  return method === undefined && values.every((value) => typeof value === "number" || value === "inf");
}

/**
 * A change that the server has made: it holds now, and the history says since when.
 * @param {import("./types.js").Changed} message
 */
export function change({ entry, replayed, history: left, ...message }) {
  const { run } = message;
  hold(message);
  if (!state.now || !state.settings) return;
  if (left) state.settings.runs[run].history = left;
  if (replayed || !entry) return;
  const history = (state.settings.runs[run].history ??= []);
  const [step, made] = entry;
  const later = history.findIndex(([at]) => at > step); // those of a link, which are still to be made
  const place = later < 0 ? history.length : later;
  const last = history[place - 1];
  if (last && last[0] === step && onlyNumbers(made)) last[1] = joined(last[1], made);
  else history.splice(place, 0, [step, made]);
}

/**
 * Back to an earlier state, with what was set and had been changed by then.
 * @param {import("./types.js").Changed & {history: [number, Change][]}} message
 */
export function rewind({ history, ...message }) {
  hold(message);
  if (state.settings) state.settings.runs[message.run].history = history;
}

/** @param {import("./types.js").Changed} message */
function hold({ run, method, h, parts, anneal, heat, layout }) {
  if (state.now) state.now[run] = { method, h, parts, anneal, heat };
  if (state.ready && layout) state.ready.parts[run] = layout;
}

/**
 * A trace replaces the one before it from an index on.
 * @param {Name} name
 * @param {Trace} piece
 */
export function extend(name, piece) {
  const trace = state.traces[name];
  if (!trace || piece.from === 0) {
    state.traces[name] = piece;
    return;
  }
  /** @template T @param {T[] | undefined} old @param {T[]} fresh @returns {T[]} */
  const spliced = (old = [], fresh) => old.slice(0, piece.from).concat(fresh);
  const both = (/** @type {Trace["loss"]} */ old, /** @type {Trace["loss"]} */ fresh) => ({
    train: spliced(old.train, fresh.train),
    test: spliced(old.test, fresh.test),
  });
  const each = (/** @type {Record<string, import("./types.js").Series>} */ old, /** @type {Record<string, import("./types.js").Series>} */ fresh) =>
    Object.fromEntries(Object.entries(fresh).map(([part, values]) => [part, spliced(old[part], values)]));
  state.traces[name] = {
    from: 0,
    step: spliced(trace.step, piece.step),
    loss: both(trace.loss, piece.loss),
    accuracy: both(trace.accuracy, piece.accuracy),
    temperature: each(trace.temperature, piece.temperature),
    configurational: each(trace.configurational, piece.configurational),
    xi: each(trace.xi, piece.xi),
  };
}
