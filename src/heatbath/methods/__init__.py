"""Methods: a word with its coefficients, as frozen values, one file for each.

θ are the parameters of a part, p their momenta, N their number, G the negative gradient of the loss, h the
stepsize. Every coefficient may be a number, a schedule, or a list (an axis of a sweep).

Each method that moves has a Gaussian prior: `weight_decay` λ adds λ|θ|²/2 to the loss that G descends.
"""

from heatbath._internal.checks import FINITE as FINITE
from heatbath._internal.checks import FRICTION as FRICTION
from heatbath._internal.checks import NON_NEGATIVE as NON_NEGATIVE
from heatbath._internal.checks import POSITIVE as POSITIVE
from heatbath._internal.checks import SHARE as SHARE
from heatbath._internal.checks import Interval as Interval
from heatbath.methods import operations as operations
from heatbath.methods.adam import Adam as Adam
from heatbath.methods.adaptive_langevin import AdaptiveLangevin as AdaptiveLangevin
from heatbath.methods.base import Method as Method
from heatbath.methods.base import check_known as check_known
from heatbath.methods.base import choices as choices
from heatbath.methods.base import coefficients as coefficients
from heatbath.methods.base import find_method as find_method
from heatbath.methods.base import gaussian_prior as gaussian_prior
from heatbath.methods.base import known_methods as known_methods
from heatbath.methods.base import module_of as module_of
from heatbath.methods.base import names as names
from heatbath.methods.base import option as option
from heatbath.methods.base import register as register
from heatbath.methods.base import starting as starting
from heatbath.methods.base import varying as varying
from heatbath.methods.frozen import Frozen as Frozen
from heatbath.methods.langevin import Langevin as Langevin
from heatbath.methods.momentum import Momentum as Momentum
from heatbath.methods.rmsprop import RMSprop as RMSprop
from heatbath.methods.sgd import SGD as SGD
from heatbath.methods.sgld import SGLD as SGLD

for _method in (Langevin, AdaptiveLangevin, SGLD, SGD, Momentum, Adam, RMSprop, Frozen):
    register(_method)
