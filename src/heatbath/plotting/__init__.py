"""Draw data, predictions, traces, landscapes and searches.

Every function draws on the Axes passed as `ax`, or on a new figure, and returns the Axes. Nothing global
changes: no pyplot figure, no window, no rcParams. A new figure is as wide as a column of a paper; `panels`
makes several Axes side by side on a page. Lines differ in dashes and in colour (Okabe and Ito's colours,
which are safe for colour-blind readers). `save` writes PNG and SVG, `embed` returns a picture for HTML.
"""

from heatbath.plotting.decision_boundaries import classifier as classifier
from heatbath.plotting.decision_boundaries import data as data
from heatbath.plotting.decision_boundaries import plane as plane
from heatbath.plotting.decision_boundaries import uncertainty as uncertainty
from heatbath.plotting.distributions import distributions as distributions
from heatbath.plotting.distributions import parameters as parameters
from heatbath.plotting.evaluation import calibration as calibration
from heatbath.plotting.evaluation import confusion as confusion
from heatbath.plotting.evaluation import predicted as predicted
from heatbath.plotting.evaluation import reliability as reliability
from heatbath.plotting.evaluation import roc as roc
from heatbath.plotting.feature_importance import column_importance as column_importance
from heatbath.plotting.feature_importance import dependence as dependence
from heatbath.plotting.landscapes import line as line
from heatbath.plotting.landscapes import surface as surface
from heatbath.plotting.output import embed as embed
from heatbath.plotting.output import save as save
from heatbath.plotting.regressions import coverage as coverage
from heatbath.plotting.regressions import regression as regression
from heatbath.plotting.regressions import uniformity as uniformity
from heatbath.plotting.style import panels as panels
from heatbath.plotting.sweeps import Score as Score
from heatbath.plotting.sweeps import heat_map as heat_map
from heatbath.plotting.sweeps import scores as scores
from heatbath.plotting.traces import curves as curves
from heatbath.plotting.traces import temperatures as temperatures
from heatbath.plotting.tuning import importance as importance
from heatbath.plotting.tuning import search as search
from heatbath.plotting.tuning import search_map as search_map
