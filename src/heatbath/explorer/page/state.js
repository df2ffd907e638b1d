/** What the page knows: settings, values in effect, traces; who wants to know is told. */

/** @typedef {import("./types.js").Name} Name */
/** @typedef {import("./types.js").Settings} Settings */
/** @typedef {import("./types.js").Change} Change */
/** @typedef {import("./types.js").Parts} Parts */
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
  /** What holds now. @type {Record<Name, {h: number, parts: Parts, anneal: import("./types.js").Anneal | null, heat: number | null}> | null} */
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
    const { h, parts, anneal = null } = copy(ready.settings.runs[name]);
    return { h, parts, anneal, heat: null };
  };
  state.now = { A: of("A"), B: of("B") };
  state.traces = {};
}

/**
 * What `later` has that `sooner` has not.
 * @param {{h: number, parts: Parts, anneal: any, heat: any}} sooner
 * @param {{h: number, parts: Parts, anneal: any, heat: any}} later
 * @returns {Change}
 */
function difference(sooner, later) {
  /** @type {Change} */
  const change = {};
  if (later.h !== sooner.h) change.h = later.h;
  for (const [part, values] of Object.entries(later.parts))
    for (const [name, value] of Object.entries(values))
      if (sooner.parts[part]?.[name] !== value) ((change.parts ??= {})[part] ??= {})[name] = value;
  for (const name of /** @type {const} */ (["anneal", "heat"]))
    if (JSON.stringify(later[name]) !== JSON.stringify(sooner[name])) change[name] = later[name];
  return change;
}

/** @param {Change} sooner @param {Change} later @returns {Change} */
function joined(sooner, later) {
  const parts = copy(sooner.parts ?? {});
  for (const [part, values] of Object.entries(later.parts ?? {})) parts[part] = { ...parts[part], ...values };
  return { ...sooner, ...later, ...(Object.keys(parts).length ? { parts } : {}) };
}

/**
 * A change that the server has made: it holds now, and the history says since when.
 * @param {import("./types.js").Changed} message
 */
export function change({ run, step, h, parts, anneal, heat = null, replayed = false }) {
  if (!state.now || !state.settings) return;
  const later = { h, parts, anneal: anneal === undefined ? state.now[run].anneal : anneal, heat };
  const made = difference(state.now[run], later);
  state.now[run] = later;
  if (replayed || Object.keys(made).length === 0) return;
  const settings = state.settings.runs[run];
  if (step === 0 && made.heat === undefined) {
    Object.assign(settings, { h, parts: copy(parts), anneal: later.anneal });
    return;
  }
  const history = (settings.history ??= []);
  const last = history[history.length - 1];
  if (last && last[0] === step) last[1] = joined(last[1], made);
  else history.push([step, made]);
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
    target: piece.target,
  };
}
