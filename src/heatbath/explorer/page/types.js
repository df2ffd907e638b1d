/**
 * What server and page say to one another, as types; heatbath/explorer/messages.py describes them.
 * @module
 */

/** @typedef {"A" | "B"} Name */
/** @typedef {number | "inf"} Value */

/** @typedef {Record<string, Value | string>} Part */
/** @typedef {Record<string, Part>} Parts */
/** Temperatures fall to `factor` of theirs within `steps`, counted from a step. @typedef {{factor: number, steps: number, from?: number}} Anneal */

/**
 * What was changed on the way.
 * @typedef {object} Change
 * @property {string} [method]
 * @property {number} [h]
 * @property {Parts} [parts]
 * @property {Anneal | null} [anneal]
 */

/**
 * What holds at the moment: the values of the sliders, and by how much it is heated.
 * @typedef {object} Now
 * @property {string} method
 * @property {number} h
 * @property {Parts} parts
 * @property {Anneal | null} anneal
 * @property {number} heat
 */

/**
 * @typedef {object} RunSettings
 * @property {string} method
 * @property {number} h
 * @property {Parts} parts
 * @property {Anneal | null} [anneal]
 * @property {[number, Change][]} [history]
 */

/** @typedef {{kind: string, [key: string]: any}} Problem */
/** @typedef {{hidden: number[], activation: string, init: string, scale: number}} Network */

/**
 * @typedef {object} View
 * @property {"mean" | "sd" | "chain"} map
 * @property {number} [chain]
 * @property {boolean} [units]
 * @property {"train" | "test" | "none"} [data]
 * @property {number | null} [speed] most steps a second
 */

/**
 * @typedef {object} Settings
 * @property {Problem} problem
 * @property {Network} network
 * @property {number} batch
 * @property {number} chains
 * @property {number} seed
 * @property {Record<Name, RunSettings>} runs
 * @property {View} view
 */

/**
 * @typedef {object} Coefficient
 * @property {string} name
 * @property {string} symbol
 * @property {string} about
 * @property {number} low
 * @property {number} high
 * @property {"log" | "linear" | "complement"} scale
 * @property {Value | null} default
 * @property {boolean} [zero]
 * @property {boolean} [infinite]
 */

/**
 * @typedef {object} PartMethod
 * @property {string} name
 * @property {string} method
 * @property {string | null} word null where there is none to choose
 * @property {string} letters
 * @property {Coefficient[]} coefficients
 * @property {{name: string, about: string, choices: (string | number)[], default: string | number}[]} options
 */

/**
 * @typedef {object} Method
 * @property {string} name
 * @property {"preset" | "method"} kind
 * @property {string} about
 * @property {PartMethod[]} parts
 * @property {Coefficient} h
 */

/** @typedef {{about: string, symbol: string}} Letter */
/** @typedef {{methods: Method[], letters: Record<string, Letter>}} Catalogue */
/** @typedef {{title: string, text: string, settings: Settings}} Scene */

/**
 * @typedef {object} Hello
 * @property {string} version
 * @property {string} session
 * @property {Catalogue} catalogue
 * @property {Record<string, any>} limits
 * @property {Scene[]} scenes
 * @property {Settings} defaults
 */

/** @typedef {[number, number, number]} Point */
/** `key` is the part's name in the settings: "hidden" of hidden1 and hidden2. @typedef {{name: string, key: string, parameters: number, thermal: boolean, adaptive: boolean, thermal_name: string | null}} PartInfo */

/**
 * @typedef {object} Ready
 * @property {Settings} settings
 * @property {[number, number, number, number]} domain
 * @property {Point[]} train
 * @property {Point[]} test
 * @property {string[]} targets
 * @property {Record<Name, PartInfo[]>} parts
 */

/** @typedef {{playing: boolean, speed: number | null, steps: Record<Name, number>}} State */

/**
 * @typedef {Now & {run: Name, step: number, layout?: PartInfo[], entry?: [number, Change], replayed?: boolean, history?: [number, Change][]}} Changed
 */

/** @typedef {(number | null)[]} Series */

/**
 * @typedef {object} Trace
 * @property {number} from
 * @property {number[]} step
 * @property {{train: Series, test: Series}} loss
 * @property {{train: Series, test: Series}} accuracy
 * @property {Record<string, Series>} temperature
 * @property {Record<string, Series>} configurational
 * @property {Record<string, Series>} xi
 */

/** @typedef {{low: number, high: number, counts: number[]}} Histogram */
/** @typedef {[number, number, number, number]} Unit */
/** @typedef {{at: number[], train: number[], test: number[]}} Line */
/** @typedef {{run: Name, step: number, part: string, chains: number, living: number}} Diverged */

/**
 * @typedef {object} WordAnswer
 * @property {boolean} ok
 * @property {{letter: string, share: number}[]} letters
 * @property {number} [gradients]
 * @property {{position: number, joint: number} | null} [order]
 * @property {string} [text]
 */

/**
 * One frame: two maps and the numbers above them.
 * @typedef {object} Frame
 * @property {number} number
 * @property {number} width
 * @property {number} height
 * @property {Record<Name, {step: number, loss: {train: number, test: number}, accuracy: {train: number, test: number}, map: Uint8Array}>} runs
 */

export {};
