"""Compute the loss on lines and surfaces in parameter space, and its barriers: section 4 of the paper.

The line from θ_a (the start of training, or a minimum) to θ_b is

    θ*(α) = (1 - α) θ_a + α θ_b,

and the surface through a start θ_0 and two minima θ_a, θ_b that were reached from it

    θ*(α, β) = β F_a(α) + (1 - β) F_b(α),    F_i(α) = θ_0 + α (θ_i - θ_0):

the start for α = 0 and any β, θ_a at (α, β) = (1, 1) and θ_b at (1, 0). Both are straight cuts through the
landscape, not the path of training.

`line` and `surface` are for dense networks, in compiled code; `heatbath.torch.landscape` has the same for any
torch module. All return labelled losses, from which `barrier` and `saddle` compute what lies between the
ends.
"""

from heatbath.analysis.landscape.barriers import barrier as barrier
from heatbath.analysis.landscape.barriers import saddle as saddle
from heatbath.analysis.landscape.dense import line as line
from heatbath.analysis.landscape.dense import surface as surface
