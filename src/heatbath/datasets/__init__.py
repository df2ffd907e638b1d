"""Problems: a `Problem` is training and test examples with what is needed to understand them.

`spirals`, `trigonometric`, `rings` and `blobs` are drawn, `mnist` is read from its IDX files, `from_table`
and `from_arrays` take the user's own data.

A drawn problem may have several draws, independent data sets side by side: chain c of a run uses draw
c % draws. Draw d of a seed is the same however many draws there are, and the training examples do not depend
on the number of test examples.
"""

from heatbath.datasets.from_arrays import from_arrays as from_arrays
from heatbath.datasets.from_table import from_table as from_table
from heatbath.datasets.mnist import mnist as mnist
from heatbath.datasets.problem import Problem as Problem
from heatbath.datasets.synthetic import blobs as blobs
from heatbath.datasets.synthetic import rings as rings
from heatbath.datasets.synthetic import spirals as spirals
from heatbath.datasets.synthetic import trigonometric as trigonometric
