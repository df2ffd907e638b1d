/**
 * What server and page say to one another, as types; heatbath/explorer/messages.py describes them.
 * @module
 */

/** @typedef {"A" | "B"} Name */
/** @typedef {number | "inf"} Value */

/**
 * @typedef {object} Coefficients
 * @property {string} [word]
 */
/** @typedef {Record<string, Value | string>} Part */
/** @typedef {Record<string, Part>} Parts */
/** @typedef {{factor: number, steps: number}} Anneal */

/**
 * What was changed on the way: only what differs from before.
 * @typedef {object} Change
 * @property {number} [h]
 * @property {Parts} [parts]
 * @property {Anneal | null} [anneal]
 * @property {number | null} [heat]
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
 * @property {string} word
 * @property {string} letters
 * @property {Coefficient[]} coefficients
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
/** @typedef {{name: string, title: string, text: string, settings: Settings}} Scene */

/**
 * @typedef {object} Hello
 * @property {string} version
 * @property {string} session
 * @property {Catalogue} catalogue
 * @property {Record<string, number>} limits
 * @property {Scene[]} scenes
 * @property {Settings} defaults
 */

/** @typedef {[number, number, number]} Point */
/** @typedef {{name: string, parameters: number, thermal: boolean, adaptive: boolean}} PartInfo */

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
 * @typedef {object} Changed
 * @property {Name} run
 * @property {number} step
 * @property {number} h
 * @property {Parts} parts
 * @property {Anneal | null} [anneal]
 * @property {number | null} [heat]
 * @property {boolean} [replayed]
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
 * @property {Record<string, number | null>} [target]
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
 * @property {number} [order]
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
