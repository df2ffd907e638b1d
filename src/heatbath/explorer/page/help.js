/** What every symbol means, shown on hover and on focus; and the page of all of them. */

import { state } from "./state.js";

/** @type {Record<string, {symbol: string, text: string}>} */
const TEXTS = {
  h: { symbol: "h", text: "The stepsize: how much time passes in one step. All parts of a run share it." },
  tau: { symbol: "τ", text: "The temperature of the bath that a part is coupled to: how much it is shaken, and how high the hills of the loss are that it still crosses. The law sampled is exp(-L/τ)." },
  gamma: { symbol: "γ", text: "The friction of a Langevin bath: how fast momenta forget. Small: they keep rolling, as in SGD with momentum. inf: they are drawn again in every step (overdamped)." },
  sigma: { symbol: "σ", text: "The driving noise of Adaptive Langevin, on top of the noise that comes from mini-batches." },
  epsilon: { symbol: "ε", text: "The coupling of the thermostat: how quickly the friction ξ answers when a part is hotter or colder than its τ." },
  xi: { symbol: "ξ", text: "The friction that Adaptive Langevin finds by itself: it rises while a part is hotter than its τ and falls while it is colder, so that the noise of mini-batches is carried off without knowing its size." },
  weight_decay: { symbol: "λ", text: "The precision of a Gaussian prior: it pulls weights to zero." },
  mu: { symbol: "μ", text: "Momentum: the share of the last move that is kept." },
  alpha: { symbol: "α", text: "How long squared gradients are remembered." },
  beta1: { symbol: "β₁", text: "How long Adam remembers gradients." },
  beta2: { symbol: "β₂", text: "How long Adam remembers squared gradients." },
  word: { symbol: "word", text: "The order in which the pieces of the dynamics act in a step; a letter that occurs k times acts for h/k each time. The tiles are as wide as their share of h." },
  anneal: { symbol: "anneal", text: "From now on, all temperatures of this run fall exponentially to this factor of their values, in this number of steps." },
  heat: { symbol: "heat", text: "While you hold this button, all temperatures of this run are multiplied. When you let go, they return to their values." },
  temperature: { symbol: "temperature", text: "A thermometer for each part. Column: kinetic temperature p·p/N, where the thermostat reads it. ◇: configurational temperature -θ·G/N of the parameters themselves. Line: the target τ. In equilibrium at one temperature, with exact gradients, all three agree; mini-batches heat, and heat flows from part to part." },
  loss: { symbol: "loss", text: "Cross entropy, the mean over chains; on the test examples (line) and on the training examples (dashed)." },
  accuracy: { symbol: "accuracy", text: "Fraction of examples classified correctly, the mean over chains; on the test examples (line) and on the training examples (dashed)." },
  lines: { symbol: "on lines", text: "When paused: the loss on the straight lines in parameter space from the start to A, from A to B, and from B back to the start (of one chain). A hill between A and B: two different valleys." },
  weights: { symbol: "weights", text: "Histograms of the parameters of each part, over all chains; counts are on a logarithmic scale, which shows the tails." },
  mean: { symbol: "mean", text: "The probability of class 1, averaged over the networks of all chains." },
  sd: { symbol: "doubt", text: "The standard deviation over chains: where the networks disagree, the classifier does not know." },
  chain: { symbol: "one chain", text: "The prediction of one network." },
  units: { symbol: "hidden units", text: "Each hidden unit switches on a line in the plane: drawn in the colour of the class that it supports, and bolder for larger output weights (one chain, networks with one hidden layer)." },
  speed: { symbol: "speed", text: "Largest number of steps a second; all: as many as the computer can make." },
  theta: { symbol: "θ, p, G, N", text: "Parameters of a part, their momenta, the negative gradient of the loss, and their number." },
};

/** @param {string} key @returns {{symbol: string, text: string} | null} */
function explained(key) {
  if (key.startsWith("letter ")) {
    const letter = key.slice(7);
    const known = state.hello?.catalogue.letters[letter];
    return known ? { symbol: letter, text: `${known.symbol}. ${known.about}` } : null;
  }
  if (key in TEXTS) return TEXTS[key];
  for (const method of state.hello?.catalogue.methods ?? [])
    for (const part of method.parts)
      for (const coefficient of part.coefficients)
        if (coefficient.name === key) return { symbol: coefficient.symbol || key, text: coefficient.about };
  return null;
}

/** One tip for the whole page, under or over what it explains. */
export function startTips() {
  const tip = /** @type {HTMLElement} */ (document.getElementById("tip"));
  /** @type {Element | null} */
  let owner = null;

  /** @param {Element} element */
  const show = (element) => {
    const holder = element.closest("[data-help]");
    if (!(holder instanceof HTMLElement) || holder === owner) return;
    const help = explained(holder.dataset.help ?? "");
    if (!help) return;
    hide();
    owner = holder;
    const name = document.createElement("b");
    name.textContent = help.symbol;
    tip.replaceChildren(name, ` ${help.text}`);
    if (holder.classList.contains("word")) {
      const letters = [...new Set([...holder.querySelectorAll(".tile")].map((t) => t.textContent ?? ""))];
      const list = document.createElement("dl");
      for (const letter of letters) {
        const entry = explained(`letter ${letter}`);
        if (!entry) continue;
        const [term, text] = [document.createElement("dt"), document.createElement("dd")];
        term.textContent = letter;
        text.textContent = entry.text;
        list.append(term, text);
      }
      tip.append(list);
      if (holder.dataset.facts) tip.append(holder.dataset.facts);
    }
    tip.hidden = false;
    const [box, own] = [holder.getBoundingClientRect(), tip.getBoundingClientRect()];
    if (holder.closest(".controls") && box.left - own.width > 20) {
      // beside the controls, so that none of them is hidden
      tip.style.left = `${box.left - own.width - 12}px`;
      tip.style.top = `${Math.max(8, Math.min(box.top + box.height / 2 - own.height / 2, innerHeight - own.height - 8))}px`;
    } else {
      const left = Math.max(8, Math.min(box.left + box.width / 2 - own.width / 2, innerWidth - own.width - 8));
      const below = box.bottom + 8 + own.height < innerHeight;
      tip.style.left = `${left}px`;
      tip.style.top = `${below ? box.bottom + 8 : Math.max(8, box.top - own.height - 8)}px`;
    }
    const target = holder.matches("button, input") ? holder : holder.querySelector("input, button");
    target?.setAttribute("aria-describedby", "tip");
  };

  const hide = () => {
    if (!owner) return;
    for (const element of document.querySelectorAll('[aria-describedby="tip"]')) element.removeAttribute("aria-describedby");
    owner = null;
    tip.hidden = true;
  };

  let timer = 0;
  document.addEventListener("pointerover", (event) => {
    clearTimeout(timer);
    const target = /** @type {Element} */ (event.target);
    if (event.pointerType === "touch" || event.buttons) return;
    if (owner && !owner.contains(target)) hide();
    if (target.closest("[data-help]")) timer = setTimeout(() => show(target), 350);
  });
  document.addEventListener("pointerdown", () => {
    clearTimeout(timer);
    hide();
  });
  document.addEventListener("focusin", (event) => {
    hide();
    const target = /** @type {Element} */ (event.target);
    if (target.matches(":focus-visible") && target.closest("[data-help]")) show(target);
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("click", (event) => {
    const term = /** @type {Element} */ (event.target).closest("button.term");
    if (term) show(term); // a finger cannot hover
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  addEventListener("scroll", hide, { passive: true, capture: true });
}

/** All of it at once, for the dialog. @param {HTMLElement} list */
export function fillHelp(list) {
  const entries = Object.keys(TEXTS).map((key) => explained(key));
  for (const letter of Object.keys(state.hello?.catalogue.letters ?? {})) entries.push(explained(`letter ${letter}`));
  list.replaceChildren(
    ...entries.flatMap((entry) => {
      if (!entry) return [];
      const [term, text] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = entry.symbol;
      text.textContent = entry.text;
      return [term, text];
    }),
  );
}
