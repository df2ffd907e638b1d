"""The operations of the compiled kernel: their numbers, and the columns of coefficients that each takes.

A letter says in `lower` which of them carry it out. The first ones act on θ and p of every parameter alike,
with G the negative gradient of the loss and R a standard normal number for each parameter; those on ξ act on
the one number of a thermostat, between two passes over its parameters.

| operation | what it does | columns |
| --- | --- | --- |
| A | θ += c p | c |
| B | p += c G - d θ | c, d |
| S | p = a p + b r R | a, b, r: a root of a temperature, or `TEMPERED` |
| C | p = exp(-c ξ) p | c |
| F | p = exp(-c ξ) p + b sqrt(φ(2 c ξ)) R, φ(x) = (1 - exp(-x))/x | c, b |
| DESCEND | θ += c G - d θ + b R | c, d, b |
| ADAM | p = β1 p + (1 - β1) G, s = β2 s + (1 - β2) G², θ += c p/(1 - β1^n)/(sqrt(s/(1 - b^n)) + eps) - d θ \
at a parameter's n-th step | c, β1, β2, eps, d, b |
| READ | p·p is noted | |
| THERMOSTAT | ξ += c (p·p - N τ), or c (p·p/N - τ) | c, τ or `TEMPERED`, whether over N |
| FLUCTUATE | ξ = a ξ + b r R, with the R of the first of its parameters | a, b, r as in S |

A temperature that is below 0 stands for that of the chain's rung (simulated tempering).
"""

from __future__ import annotations

A, B, S, C, F, DESCEND, ADAM, READ, THERMOSTAT, FLUCTUATE = range(10)
WIDTH = 6  # columns of an operation, at most
TEMPERED = -1.0  # in place of a temperature, or of its root: that of the chain's rung

ON_FRICTION = (THERMOSTAT, FLUCTUATE)  # they act on ξ
MOVING = (A, DESCEND, ADAM)  # θ is another afterwards
DESCENDING = (B, DESCEND, ADAM)  # the first column multiplies G
ADDED = (A, B)  # two in a row are one, with the sum of their columns
ALWAYS_DRAWING = (F, FLUCTUATE)
WITH_FRICTION = (C, F, THERMOSTAT, FLUCTUATE)  # they need a ξ
FOR_LETTERS = {A, B, S, C, F, DESCEND, ADAM, THERMOSTAT, FLUCTUATE}
NOISE_COLUMN = {S: 1, F: 1, DESCEND: 2, FLUCTUATE: 1}  # what multiplies the noise

NEUTRAL = {S: (1.0,), FLUCTUATE: (1.0,)}
"""Columns with which an operation changes nothing, where these are not all 0."""

UNITS = {A: (1,), B: (-1, 1), DESCEND: (0, 2, 1), ADAM: (0, 0, 0, 0, 2, 0)}
"""The powers of the unit of the momenta (see `likelihood`) that multiply columns, where these are not 0."""
