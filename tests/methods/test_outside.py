"""A method that is not in the package: Nosé-Hoover-Langevin dynamics, in this file only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import ClassVar

import numpy as np
import pytest

import heatbath as hb
from heatbath._internal.checks import FRICTION, NON_NEGATIVE
from heatbath.cli import main
from heatbath.cli.report import figures
from heatbath.methods import Method, find_method, gaussian_prior, known_methods, operations, starting, varying
from heatbath.methods.base import PUBLIC, TAKEN, _known
from heatbath.methods.letters import DRIFT, KICK, Letter
from heatbath.methods.presets import PRESETS
from heatbath.methods.schedules import Coefficient
from heatbath.runs.dataset import RESULTS
from heatbath.runs.file import ARRAYS
from tests.methods.contracts import (
    CONTRACTS,
    example,
    is_followed_by_both_ways_of_torch,
    is_followed_by_the_engine,
    is_known_to_the_command_line,
)
from tests.optional import optional
from tests.processes import run_in_copy

torch = optional("torch")

PROBLEM = hb.datasets.spirals(turns=1, n_train=40, n_test=20, seed=3)


def act_c(now):
    now.p = np.exp(-now.t * now.friction) * now.p


def act_e(now):
    now.xi = now.xi + now.t * now["epsilon"] * (now.squares - now.sizes * now.tau)


def act_o(now):
    a = np.exp(-now["gamma"] * now.t)
    now.xi = a * now.xi + np.sqrt(now["epsilon"] * now.tau * (1 - a**2)) * now.R_of_friction


def columns_o(values):
    exponent = values["gamma"] * values.t
    width = np.sqrt(values["epsilon"]) * np.sqrt(-np.expm1(-2 * exponent))
    return [np.exp(-exponent), width, values.root_tau]


@dataclass(frozen=True, repr=False)
class NoseHooverLangevin(Method):
    """The dynamics dp = G dt - ξ p dt, dξ = ε (p·p - Nτ) dt - γ ξ dt + sqrt(2γετ) dW.

    It samples exp(-H/τ), and ξ ~ N(0, ετ).
    """

    gamma: Coefficient = varying(FRICTION, "Friction on ξ.")
    tau: Coefficient = varying(NON_NEGATIVE, "Temperature.", tempered=True)
    epsilon: Coefficient = varying(NON_NEGATIVE, "Coupling of the thermostat.")
    word: str = "BACEOECAB"
    xi: Coefficient = starting("Where ξ starts.", 0.0)
    weight_decay: Coefficient = gaussian_prior()

    title = "NHL"
    thermostat = "part"
    letters: ClassVar[dict[str, Letter]] = {
        "A": DRIFT,
        "B": KICK,
        "C": Letter(act_c, ((operations.C, lambda values: [values.t]),)),
        "E": Letter(
            act_e,
            ((operations.THERMOSTAT, lambda values: [values.t * values["epsilon"], values.tau, 0.0]),),
            reads=True,
        ),
        "O": Letter(act_o, ((operations.FLUCTUATE, columns_o),), draws=True),
    }


@pytest.fixture
def registered():
    hb.register(NoseHooverLangevin)
    yield NoseHooverLangevin
    _known.pop("NoseHooverLangevin")


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
def test_a_method_from_outside_keeps_every_contract(registered, contract, request):
    fixtures = [request.getfixturevalue(f) for f in list(signature(contract).parameters)[1:]]
    contract(example(registered), *fixtures)


@pytest.mark.parametrize("word", ["BACEOECAB", "ABCEOECBA", "OECABACEO", "BAECOCEAB"])
def test_its_words_are_followed_too(registered, word):
    from tests.engine import test_ensemble

    partition = hb.Partition(example(registered, word=word), 0.05)
    test_ensemble.assert_same_trajectory(*test_ensemble.runs(partition))


@pytest.mark.parametrize("word", ["BACEOECAB", "OECBABCEO"])
def test_its_first_step_closes_nothing_and_leaves_xi_where_it_starts(registered, word):
    """A ξ of 0 would not tell: a letter on ξ that closes a step which never began could erase it."""
    from tests.engine import test_ensemble
    from tests.torch.optim import test_optimizer

    partition = hb.Partition(example(registered, word=word, xi=0.7), 0.05)
    test_ensemble.assert_same_trajectory(*test_ensemble.runs(partition), steps=3)
    for fused in (True, False):
        model = test_optimizer.network()
        optimizer = test_optimizer.by_layer(model, partition, seed=5, fused=fused)
        expected = test_optimizer.advance_reference(partition, 3, seed=5)
        assert test_optimizer.difference_after(3, model, optimizer, expected) < 1e-12
        assert optimizer.param_groups[0]["xi"] == pytest.approx(expected.xi["all"][0, 0], rel=1e-12)


@pytest.mark.parametrize("tau", [0.09, 2.0])
def test_its_law_is_that_of_its_docstring(registered, tau):
    """Over 4,000 chains, within 4.5 standard errors and 2 % for O(h²).

    The control: at γ = 0, Nosé and Hoover's dynamics, which is not ergodic, ξ keeps another variance.
    """
    epsilon, k, chains = 1.4 / tau, np.array([1.0, 2.3]), 4_000

    def final(gamma):
        reference = hb.Reference(
            lambda theta, batch: k * theta,
            np.full((chains, 2), 0.3),
            hb.Partition(registered(gamma, tau, epsilon), 0.1),
            momenta="thermal",
            noise=lambda step, slot: np.random.default_rng((step, slot)).standard_normal((chains, 2)),
        )
        reference.advance(1_500)
        return reference.state

    state, error = final(1.0), 4.5 * np.sqrt(2 / chains) + 0.02
    np.testing.assert_allclose(np.mean(k * state.theta**2, axis=0) / tau, 1.0, atol=error)
    xi = state.xi["all"]
    assert np.var(xi) / (epsilon * tau) == pytest.approx(1.0, abs=error)
    assert abs(np.mean(xi)) < 4.5 * np.sqrt(epsilon * tau / chains)
    assert np.var(final(0.0).xi["all"]) / (epsilon * tau) != pytest.approx(1.0, abs=error)


def test_nobody_knows_it_before_it_is_registered():
    method = NoseHooverLangevin(1.0, 1e-3, 0.1)
    with pytest.raises(TypeError, match=r"NoseHooverLangevin is not registered: call heatbath.register"):
        hb.Partition(method, 0.1)
    assert "NoseHooverLangevin" not in known_methods()


def test_a_file_says_which_module_to_import(registered, tmp_path):
    problem = hb.datasets.spirals(turns=1, n_train=40, n_test=20, seed=3)
    run = hb.train(problem, hb.MLP((4,)), hb.Partition(example(registered), 0.05), 10, 10)
    run.save(tmp_path / "run.nc")
    _known.pop("NoseHooverLangevin")
    try:
        with pytest.raises(
            ValueError, match=r"'NoseHooverLangevin'; it is defined in tests.methods.test_outside: import"
        ):
            hb.load(tmp_path / "run.nc")
    finally:
        hb.register(NoseHooverLangevin)
    assert hb.load(tmp_path / "run.nc").partition == run.partition


MARK = varying(NON_NEGATIVE, "A coefficient.", 0.1)


def make_class(name, letters=None, **attributes):
    """Return a new method class, which may be put together wrongly."""
    fields = [key for key, value in attributes.items() if hasattr(value, "metadata")]
    body = {**attributes, "__annotations__": dict.fromkeys(fields, "Coefficient")}
    if letters is not None:
        body["letters"] = letters
    return dataclass(frozen=True, repr=False)(type(name, (Method,), body))


def nothing(values):
    return [0.0]


def letter(operation, **flags):
    return Letter(act_c, ((operation, nothing),), **flags)


DESCENT = {"G": letter(operations.DESCEND, moves=True, kicks=True)}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (lambda: make_class("LOL", DESCENT, word="G"), "its name is taken; so are AdLaLa, LOL"),
        (
            lambda: make_class("SGD", DESCENT, word="G"),
            r"of this name already, heatbath\.methods\.sgd\.SGD",
        ),
        (
            lambda: make_class("X", DESCENT, word="G", title="adl"),
            r"already, .*\.AdaptiveLangevin",
        ),
        (
            lambda: make_class("X", DESCENT, word="G", step=MARK),
            "the fields step have names with another meaning",
        ),
        (
            lambda: make_class("X", DESCENT, word="G", loss=MARK),
            "the fields loss have names with another meaning",
        ),
        (lambda: make_class("X", {"C": letter(operations.C)}, word="C"), "'C' needs a ξ"),
        (
            lambda: make_class("X", {"GG": DESCENT["G"]}, word="G"),
            "a letter is one character, got 'GG'",
        ),
        (lambda: make_class("X", {"G": letter(99)}, word="G"), r"lowers to \[99\], accepted are"),
        (lambda: make_class("X", {"G": Letter(act_c, (), moves=True)}, word="G"), "lowers to nothing"),
        (
            lambda: make_class("X", {"G": letter(operations.DESCEND, kicks=True)}, word="G"),
            "moves is not what its",
        ),
        (
            lambda: make_class("X", {"G": letter(operations.DESCEND, moves=True)}, word="G"),
            "kicks is not what its",
        ),
        (
            lambda: make_class("X", {"M": letter(operations.ADAM, moves=True, kicks=True)}, word="M"),
            "needs a second moment: keeps_second = True",
        ),
        (
            lambda: make_class("X", DESCENT, word="G", thermostat="part"),
            "a field xi made by starting is needed",
        ),
        (
            lambda: make_class("X", DESCENT, word="G", zeta=starting("ξ", 0.7)),
            "a field xi made by starting",
        ),
        (
            lambda: make_class("X", DESCENT, word="G", heat=varying(NON_NEGATIVE, "", 0.1, tempered=True)),
            "only tau can be tempered, not heat",
        ),
        (
            lambda: make_class(
                "X", {"F": letter(operations.F)}, word="F", thermostat="part", xi=starting("ξ", 0.0)
            ),
            "needs noise: draws=True",
        ),
        (lambda: make_class("X", {"B": KICK}, word="B"), "no letter of 'B' moves θ"),
    ],
)
def test_a_method_whose_parts_do_not_fit_together_is_refused(kind, message):
    """Each of these crashed the process, or ran as something else in silence."""
    with pytest.raises(ValueError, match=message):
        hb.register(kind())


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(ValueError, match="its name is taken") as error:
        hb.register(make_class("LOL", {"G": Letter(act_c, (), moves=True)}, word="G", step=MARK))
    assert str(error.value).count(";") >= 3


def test_names_with_another_meaning_are_all_known():
    results = {result.name for result in RESULTS} | {d for result in RESULTS for d in result.dimensions}
    arrays = {*ARRAYS, *(dimension for dimensions in ARRAYS.values() for dimension in dimensions)}
    assert results | arrays <= TAKEN | {"xi", "thermostat"}
    (group,) = hb.torch.SGD(torch.nn.Linear(2, 1), 0.1).param_groups
    assert set(group) - {"weight_decay"} <= TAKEN
    assert set(PRESETS) <= set(PUBLIC)


def test_noise_or_columns_that_a_lowering_cannot_mean_are_refused():
    def wide(values):
        return [0.0] * 7

    def noisy(values):
        return [values.t, 0.0, 1.0]

    model = torch.nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    for columns, message in (
        (wide, "an operation has at most 6 columns"),
        (noisy, "must say draws=True"),
    ):
        descent = Letter(act_c, ((operations.DESCEND, columns),), moves=True, kicks=True)
        kind = hb.register(make_class("Odd", {"G": descent}, word="G"))
        try:
            with pytest.raises(ValueError, match=message):
                hb.train(PROBLEM, hb.MLP((4,)), hb.Partition(kind(), 0.1), 5, 5)
            with pytest.raises(ValueError, match=message):
                hb.torch.Partitioned([{"params": model.parameters(), "method": kind()}], 0.1).step()
        finally:
            _known.pop("Odd")


def test_a_word_that_would_stand_still_is_refused(registered):
    with pytest.raises(ValueError, match="word 'BB': none of its letters moves θ"):
        registered(1.0, 1e-3, 0.1, word="BB")
    with pytest.raises(ValueError, match="word 'ACEOECA': none of its letters uses the gradient"):
        registered(1.0, 1e-3, 0.1, word="ACEOECA")


def test_a_class_of_the_same_name_is_not_taken_for_another(registered):
    @dataclass(frozen=True, repr=False)
    class SGD(hb.SGD):
        pass

    model = torch.nn.Linear(2, 1)
    with pytest.raises(TypeError, match="SGD was registered again after this value was made"):
        hb.Partition(SGD(), 0.1)
    with pytest.raises(TypeError, match="SGD was registered again after this value was made"):
        hb.torch.Partitioned([{"params": model.parameters(), "method": SGD()}], 0.1)
    with pytest.raises(ValueError, match=r"of somewhere is needed, but that of tests\.[\w.]+ is"):
        find_method("NoseHooverLangevin", "somewhere")
    with pytest.raises(ValueError, match="it was defined in a script: define it in a module of its own"):
        find_method("Gone", "__main__")


def test_one_xi_for_each_tensor_is_one_in_torch_too():
    @hb.register
    @dataclass(frozen=True, repr=False)
    class PerTensor(NoseHooverLangevin):
        title = "PerTensor"
        thermostat = "tensor"

    try:
        is_followed_by_both_ways_of_torch(example(PerTensor))
        is_followed_by_the_engine(example(PerTensor))
    finally:
        _known.pop("PerTensor")


def act_refresh(now):
    now.p = np.sqrt(now.tau) * now.R


def test_a_temperature_that_no_letter_reads_is_not_shown(tmp_path, monkeypatch, capsys):
    """The summary of the command line works without it."""
    refresh = Letter(act_refresh, ((operations.S, lambda values: [0.0, 1.0, values.root_tau]),), draws=True)
    tau = varying(NON_NEGATIVE, "Temperature.", 1e-4, tempered=True)
    kind = hb.register(make_class("Refreshed", {"A": DRIFT, "B": KICK, "R": refresh}, tau=tau, word="RBAB"))
    try:
        is_known_to_the_command_line(kind(tau=2e-4), tmp_path, capsys, monkeypatch)
        with pytest.raises(ValueError, match="no part of this run has a temperature"):
            hb.diagnostics.equipartition(hb.load(tmp_path / "run" / "run.nc"))
    finally:
        _known.pop("Refreshed")


MODULE = '''
from dataclasses import dataclass
from typing import Literal
import heatbath as hb
from heatbath._internal.checks import NON_NEGATIVE
from heatbath.methods import option, varying

@hb.register
@dataclass(frozen=True, repr=False)
class Mine(hb.SGD):
    """Descent."""
    lam: float = varying(NON_NEGATIVE, "Nothing.", 0.1)
    style: Literal["a", "b"] = option("Style", "a", "b")
'''


@pytest.mark.slow
def test_a_module_of_one_s_own_on_the_command_line(tmp_path, monkeypatch):
    """Settings name the module to import; a broken one gives one line; several values are in brackets."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("nonsense(")
    monkeypatch.setattr(figures, "draw_figures", lambda *arguments: [])

    def call(*arguments):
        return run_in_copy(partial(main, list(arguments)), tmp_path)

    small = ["--problem", "spirals", "--n-train", "20", "--n-test", "10", "--hidden", "4"]
    small += ["--steps", "20", "--chains", "1"]
    done = call("--import", "mine", "train", *small, "--method", "mine:h=0.1,style=b", "--out", "one")
    assert done.returncode == 0, done.stderr
    settings = (tmp_path / "one" / "settings.toml").read_text()
    assert settings.startswith("# Reproduce with: heatbath --import mine train --settings settings.toml")
    assert 'module = "mine"' in settings
    done = call("resume", "one")
    assert "there is no method 'mine'" in done.stderr
    assert "(heatbath --import mine ...)" in done.stderr
    assert call("--import", "mine", "resume", "one").returncode == 0
    done = call("--import", "mine", "sweep", *small, "--method", "mine:h=0.1,lam=[0,0.2]", "--out", "two")
    assert done.returncode == 0, done.stderr
    done = call("--import", "broken", "info")
    assert done.returncode == 2
    assert "heatbath: --import broken failed: SyntaxError" in done.stderr
    assert "Traceback" not in done.stderr


class NotAMethod:
    pass


def test_what_is_no_method_is_not_registered():
    for other in (NotAMethod, Method, 7):
        with pytest.raises(
            TypeError, match=r"register takes a dataclass that derives from heatbath\.methods"
        ):
            hb.register(other)

    class Bare(Method):
        pass

    with pytest.raises(TypeError, match="register takes a dataclass"):
        hb.register(Bare)

    @dataclass(frozen=True)
    class Unmarked(Method):
        rate: float = 0.1

    with pytest.raises(ValueError, match="the fields rate must be made by varying, starting or option"):
        hb.register(Unmarked)
