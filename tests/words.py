"""Words of the two methods that have some."""

import heatbath as hb
from heatbath.methods.splitting import Substep


def parse(word: str, method: str = "Langevin") -> tuple[Substep, ...]:
    """Return the letters of a word, checked by its method."""
    if method == "Langevin":
        return hb.Langevin(gamma=1.0, tau=1e-4, word=word).substeps
    return hb.AdaptiveLangevin(tau=1e-4, sigma=0.01, epsilon=0.1, word=word).substeps
