"""Every method keeps every contract."""

from inspect import signature

import pytest

from heatbath.methods import known_methods
from tests.contracts import CONTRACTS, example


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
@pytest.mark.parametrize("name", known_methods())
def test_every_method(name, contract, request):
    fixtures = [request.getfixturevalue(f) for f in list(signature(contract).parameters)[1:]]
    contract(example(known_methods()[name]), *fixtures)
