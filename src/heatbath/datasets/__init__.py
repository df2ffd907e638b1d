"""Make problems: training and test examples with the names and units that explain them.

`spirals`, `trigonometric`, `rings` and `blobs` are drawn at random, `mnist` is read from its IDX files, and
`from_table` and `from_arrays` take the user's own data.

A random problem may have several draws: independent data sets side by side. Chain c of a run uses draw
c % draws. Draw d of a seed doesn't depend on the number of draws, and the training examples don't depend on
the number of test examples.
"""

from heatbath.datasets.from_arrays import from_arrays as from_arrays
from heatbath.datasets.from_table import from_table as from_table
from heatbath.datasets.mnist import mnist as mnist
from heatbath.datasets.problem import Problem as Problem
from heatbath.datasets.synthetic import blobs as blobs
from heatbath.datasets.synthetic import rings as rings
from heatbath.datasets.synthetic import spirals as spirals
from heatbath.datasets.synthetic import trigonometric as trigonometric
