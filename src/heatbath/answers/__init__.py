"""What is said of a run: how good its predictions are, beside simple ones, and what they are made of.

`judge` gives the measures of a run's averaged prediction and of its single networks, `baselines` those of a
constant and of a linear model on the same examples, `choose` the best of a sweep or a comparison by examples
that have no part in what is said of it; `importance` and `dependence` say which columns of the data matter,
and how.
"""

from heatbath.answers.forecasts import Forecast as Forecast
from heatbath.answers.forecasts import measure as measure
from heatbath.answers.influence import Dependence as Dependence
from heatbath.answers.influence import Importance as Importance
from heatbath.answers.influence import dependence as dependence
from heatbath.answers.influence import importance as importance
from heatbath.answers.judging import Answer as Answer
from heatbath.answers.judging import Choice as Choice
from heatbath.answers.judging import baselines as baselines
from heatbath.answers.judging import choose as choose
from heatbath.answers.judging import difference as difference
from heatbath.answers.judging import examples_of as examples_of
from heatbath.answers.judging import judge as judge
from heatbath.answers.simple import Examples as Examples
