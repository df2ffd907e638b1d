"""An independent account of the letters on a quadratic: products of matrices, from the word alone.

The state is (θ, p, G): the gradient is a component of its own, set when it is evaluated and used by the
kicks, so that "evaluated once" and "at the θ seen between steps" are part of the algebra.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass
class Linear:
    """A map x → M x + S z on (θ, p, G), built up letter by letter."""

    K: Array
    M: Array = field(init=False)
    S: Array = field(init=False)

    def __post_init__(self) -> None:
        self.N = len(self.K)
        self.M = np.eye(3 * self.N)
        self.S = np.zeros((3 * self.N, 0))

    def evaluate(self, s: float = 0.0) -> None:
        """Apply a gradient: G = -K θ + s z."""
        N = self.N
        step = np.eye(3 * N)
        step[2 * N :] = 0
        step[2 * N :, :N] = -self.K
        self._apply(step, s, slice(2 * N, 3 * N))

    def letter(
        self,
        letter: str,
        t: float,
        *,
        tau: float,
        gamma: float = 0,
        xi: float = 0,
        sigma: float = 0,
        at: slice = slice(None),
    ) -> None:
        """Apply one letter for a time t, on the parameters `at`."""
        N = self.N
        which = np.arange(N)[at]
        step = np.eye(3 * N)
        scale = 0.0
        for i in which:
            theta, p, G = i, N + i, 2 * N + i
            if letter == "A":
                step[theta, p] = t
            elif letter == "B":
                step[p, G] = t
            elif letter == "O":
                step[p, p] = math.exp(-gamma * t) if gamma < math.inf else 0
                scale = math.sqrt(tau * (1 - step[p, p] ** 2))
            elif letter == "C":
                step[p, p] = math.exp(-xi * t)
            elif letter == "D":
                scale = sigma * math.sqrt(t)
            elif letter == "F":
                step[p, p] = math.exp(-xi * t)
                scale = sigma * math.sqrt((1 - math.exp(-2 * xi * t)) / (2 * xi) if xi else t)
            else:
                assert letter == "E"  # ξ is held
        self._apply(step, scale, N + which)

    def _apply(self, step: Array, scale: float, rows: object) -> None:
        self.M = step @ self.M
        self.S = step @ self.S
        if scale:
            self.S = np.hstack([self.S, scale * np.eye(3 * self.N)[:, rows]])

    @property
    def phase(self) -> tuple[Array, Array]:
        """Return M and S of (θ, p) alone."""
        return self.M[: 2 * self.N, : 2 * self.N], self.S[: 2 * self.N]


def word_as_written(word: str, h: float, K: Array, **coefficients: float) -> Linear:
    """Return the map of one step of a word, with G evaluated before every kick.

    That changes nothing where θ has not moved.
    """
    step = Linear(K)
    for letter in word:
        if letter == "B":
            step.evaluate()
        step.letter(letter, h / word.count(letter), **coefficients)
    return step


def lyapunov(M: Array, S: Array) -> Array:
    """Solve V = M V Mᵀ + S Sᵀ as a linear system, which is not the library's way."""
    size = len(M)
    V: Array = np.linalg.solve(np.eye(size**2) - np.kron(M, M), (S @ S.T).ravel()).reshape(size, size)
    return V
