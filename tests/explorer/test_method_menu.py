"""The methods that the page offers, with their sliders."""

from dataclasses import dataclass

import pytest

import heatbath as hb
from heatbath._internal.checks import POSITIVE
from heatbath.explorer import method_menu
from heatbath.methods import base as registry
from heatbath.methods.base import varying


def test_the_catalogue_contains_registered_methods(monkeypatch):
    monkeypatch.setattr(registry, "_known", dict(registry._known))

    @hb.register
    @dataclass(frozen=True, repr=False)
    class Sluggish(hb.SGD):
        slowness: float = varying(POSITIVE, "How slow.", 2.0)

    names = [method["name"] for method in method_menu.catalogue()["methods"]]
    assert "Sluggish" in names


def test_every_slider_contains_its_default_and_exceeds_the_range_of_tune():
    for method in method_menu.catalogue()["methods"]:
        sliders = [method["h"], *(c for part in method["parts"] for c in part["coefficients"])]
        for slider in sliders:
            default, low, high = slider["default"], slider["low"], slider["high"]
            assert low < high
            if default == "inf":
                assert slider["infinite"]
            elif default == 0:
                assert slider["zero"]
            else:
                assert low <= default <= high, (method["name"], slider)
            if slider["scale"] == "log":
                assert low > 0
    adlala = {method["name"]: method for method in method_menu.catalogue()["methods"]}["AdLaLa"]
    hidden, output = adlala["parts"]
    assert (hidden["method"], output["method"]) == ("AdaptiveLangevin", "Langevin")
    tau = {c["name"]: c for c in hidden["coefficients"]}["tau"]
    assert (tau["symbol"], tau["low"], tau["high"]) == ("τ", 2e-6, 2e-2)
    tau_output = {c["name"]: c for c in output["coefficients"]}["tau"]
    assert tau_output["low"] == pytest.approx(1e-9)  # where tune looks for that of the output layer
