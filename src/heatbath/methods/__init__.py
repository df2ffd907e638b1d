"""Methods: a word with its coefficients, as frozen values, one file for each.

θ are the parameters of a part, p their momenta, N their number, G the negative gradient of the loss, h the
stepsize. Every coefficient may be a number, a schedule, or a list (an axis of a sweep).

Each method that moves has a Gaussian prior: `weight_decay` λ adds λ|θ|²/2 to the loss that G descends.
"""

from heatbath.methods.adam import Adam as Adam
from heatbath.methods.adaptive_langevin import AdaptiveLangevin as AdaptiveLangevin
from heatbath.methods.frozen import Frozen as Frozen
from heatbath.methods.langevin import Langevin as Langevin
from heatbath.methods.method import Method as Method
from heatbath.methods.method import check_known as check_known
from heatbath.methods.method import choices as choices
from heatbath.methods.method import coefficients as coefficients
from heatbath.methods.method import find_method as find_method
from heatbath.methods.method import gaussian_prior as gaussian_prior
from heatbath.methods.method import known_methods as known_methods
from heatbath.methods.method import module_of as module_of
from heatbath.methods.method import names as names
from heatbath.methods.method import option as option
from heatbath.methods.method import register as register
from heatbath.methods.method import starting as starting
from heatbath.methods.method import varying as varying
from heatbath.methods.momentum import Momentum as Momentum
from heatbath.methods.rmsprop import RMSprop as RMSprop
from heatbath.methods.sgd import SGD as SGD
from heatbath.methods.sgld import SGLD as SGLD

for _method in (Langevin, AdaptiveLangevin, SGLD, SGD, Momentum, Adam, RMSprop, Frozen):
    register(_method)
