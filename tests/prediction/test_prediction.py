"""Samples of torch models and of runs, what they say together, and scores of it."""

import json
import math
import subprocess
import sys
import tracemalloc
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

import heatbath as hb
import heatbath.torch as ht
from heatbath.prediction import Samples, committee, predict, scores
from heatbath.prediction.averages import Average
from tests.runs import SMALL, SPIRALS


def model_of(value):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(value)
    return model


def collect(steps, **options):
    """A model whose first weight is the number of the step, and its samples."""
    model = model_of(0.0)
    samples = Samples(model, **options)
    for n in range(1, steps + 1):
        with torch.no_grad():
            model[0].weight[0, 0] = n
        samples.take()
    return samples


@pytest.mark.parametrize("on_disk", [False, True])
def test_samples_begin_after_the_burn_in_and_are_evenly_spaced(on_disk, tmp_path):
    samples = collect(25, burn_in=10, thin=3, folder=tmp_path if on_disk else None)
    assert samples.steps == [13, 16, 19, 22, 25]
    assert [int(state["0.weight"][0, 0]) for state in samples] == samples.steps
    assert len(list(tmp_path.glob("*.pt"))) == (5 if on_disk else 0)


@pytest.mark.parametrize("on_disk", [False, True])
def test_there_are_never_too_many_and_they_stay_evenly_spaced(on_disk, tmp_path):
    samples = collect(1000, burn_in=7, most=16, folder=tmp_path if on_disk else None)
    assert 8 <= len(samples) <= 16
    assert len(set(np.diff(samples.steps))) == 1
    assert samples.steps[0] - 7 == samples.thin
    assert [int(state["0.weight"][0, 0]) for state in samples] == samples.steps
    assert len(list(tmp_path.glob("*.pt"))) == (len(samples) if on_disk else 0)


def states(count, seed=0):
    torch.manual_seed(seed)
    made = []
    for _ in range(count):
        model = torch.nn.Linear(2, 3)
        made.append({name: value.clone() for name, value in model.state_dict().items()})
    return made


@pytest.mark.parametrize("task", ["binary", "classes", "regression"])
def test_predictions_are_means_over_samples(task):
    model, x = torch.nn.Linear(2, 3), torch.randn(5, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    own = states(7)
    said = torch.stack([x.double() @ s["weight"].double().T + s["bias"].double() for s in own])
    if task == "binary":
        said = torch.sigmoid(said)
    if task == "classes":
        said = torch.softmax(said, dim=-1)
    told = predict(model, own, x, task=task)
    torch.testing.assert_close(told.mean, said.mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(told.variance, said.var(0, correction=0), rtol=1e-4, atol=1e-6)
    m = said.mean(0)
    entropy = {
        "classes": -(m * m.log()).sum(-1),
        "binary": -(m * m.log() + (1 - m) * (1 - m).log()).sum(-1),
        "regression": 0.5 * torch.log(2 * math.pi * math.e * said.var(0, correction=0)).sum(-1),
    }[task]
    torch.testing.assert_close(told.entropy, entropy, rtol=1e-4, atol=1e-5)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_modes_and_buffers_are_as_they_were_also_after_an_error():
    model = model_of(0.3)
    model[0].eval()
    modes = [module.training for module in model.modules()]
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    samples = Samples(model)
    samples.take()
    predict(model, samples, torch.randn(4, 2), task="classes")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        predict(model, samples, torch.randn(4, 5), task="classes")
    assert [module.training for module in model.modules()] == modes
    for name, value in model.named_buffers():
        assert torch.equal(value, buffers[name])


def test_a_sampled_posterior_is_unsure_where_there_are_no_data():
    """Away from the data the predictions of the samples differ more."""
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 40)[:, None]
    y = torch.sin(3 * x) + 0.1 * torch.randn_like(x)
    model = torch.nn.Sequential(torch.nn.Linear(1, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
    optimizer = ht.Langevin(model, 0.1, gamma=1.0, tau=1e-3, weight_decay=1e-3)
    samples = Samples(model, burn_in=1000, thin=20, most=200)
    for _ in range(4000):
        optimizer.zero_grad()
        (0.5 * (model(x) - y).square().mean()).backward()
        optimizer.step()
        samples.take()
    told = predict(model, samples, torch.tensor([[0.0], [4.0]]), task="regression")
    assert told.variance[1].item() > 3 * told.variance[0].item()


def test_what_cannot_be_is_refused():
    model = torch.nn.Linear(2, 3)
    with pytest.raises(ValueError, match="there are no samples"):
        predict(model, [], torch.zeros(1, 2), task="classes")
    with pytest.raises(ValueError, match="task must be one of 'binary', 'classes', 'regression'"):
        predict(model, states(1), torch.zeros(1, 2), task="logits")
    with pytest.raises(TypeError, match="model must be a torch module"):
        Samples(3)
    with pytest.raises(ValueError, match="most must be a whole number >= 2"):
        Samples(model, most=1)


def number_of(model, n):
    with torch.no_grad():
        model[0].weight[0, 0] = n


def go_on(samples, steps):
    """Further steps; the first weight is the number of the step."""
    for n in range(samples.step + 1, samples.step + steps + 1):
        number_of(samples.model, n)
        samples.take()
    return samples


@pytest.mark.parametrize("cut", [7, 10, 13, 55, 239, 519])
def test_a_restarted_program_goes_on_with_the_samples_it_had(cut, tmp_path):
    """The steps count on from the last sample; where the cut is at one, as if it had never stopped."""
    settings = {"burn_in": 7, "thin": 2, "most": 6}
    before = collect(cut, folder=tmp_path, **settings)
    again = Samples(model_of(0.5), folder=tmp_path, **settings)
    assert (again.steps, again.step) == (before.steps, before.steps[-1] if cut > 7 else 0)
    assert len(again) == 0 or again.thin == before.thin
    whole = collect(again.step + 300, **settings)
    go_on(again, 300)
    assert (again.steps, again.thin) == (whole.steps, whole.thin)
    assert [int(state["0.weight"][0, 0]) for state in again] == again.steps
    assert len(list(tmp_path.glob("*.pt"))) == len(again)


@pytest.mark.parametrize("dropped", [1, 2, 3])
def test_what_a_killed_program_left_half_done_is_finished(dropped, tmp_path):
    """Killed while every other sample was dropped, or while one was written."""
    files = collect(12, burn_in=2, most=10, folder=tmp_path).steps
    assert files == list(range(3, 13))
    for step in files[0 : 2 * dropped : 2]:
        (tmp_path / f"sample-{step:012d}.pt").unlink()
    (tmp_path / "sample-000000000013.pt.part").write_bytes(b"half")
    samples = Samples(model_of(0.0), burn_in=2, most=10, folder=tmp_path)
    assert (samples.steps, samples.thin) == ([4, 6, 8, 10, 12], 2)
    assert not list(tmp_path.glob("*.part"))
    assert go_on(samples, 2).steps == [4, 6, 8, 10, 12, 14]


def test_a_folder_of_other_samples_is_refused_at_once(tmp_path):
    collect(5, burn_in=1, folder=tmp_path)
    with pytest.raises(
        ValueError, match=r"made with burn_in=1, thin=1, most=100, got burn_in=2.*empty folder"
    ):
        Samples(model_of(0.0), burn_in=2, folder=tmp_path)
    with pytest.raises(ValueError, match="thin=2"):
        Samples(model_of(0.0), burn_in=1, thin=2, folder=tmp_path)
    with pytest.raises(ValueError, match="most=50"):
        Samples(model_of(0.0), burn_in=1, most=50, folder=tmp_path)
    with pytest.raises(ValueError, match=r"of another model, which differs in '0\.bias', .* and \d more"):
        Samples(torch.nn.Linear(2, 3), burn_in=1, folder=tmp_path)
    with pytest.raises(ValueError, match=r"of another model, which differs in '2\.bias', '2\.weight': "):
        Samples(model_of(0.0)[:2].append(torch.nn.Linear(3, 4)), burn_in=1, folder=tmp_path)
    with pytest.raises(ValueError, match="of another model"):
        Samples(model_of(0.0).double(), burn_in=1, folder=tmp_path)
    assert len(Samples(model_of(0.0), burn_in=1, folder=tmp_path)) == 4
    settings = tmp_path / "samples.json"
    for text in ("{", "[]", json.dumps({"burn_in": 1}), None):
        settings.unlink() if text is None else settings.write_text(text)
        with pytest.raises(
            ValueError, match=r"samples\.json, which says what made them, is missing or not as"
        ):
            Samples(model_of(0.0), burn_in=1, folder=tmp_path)


def test_settings_without_samples_are_compared_at_once_too(tmp_path):
    samples = collect(1, folder=tmp_path)
    (tmp_path / "sample-000000000001.pt").unlink()
    with pytest.raises(ValueError, match="made with burn_in=0"):
        Samples(samples.model, burn_in=1, folder=tmp_path)
    assert Samples(samples.model, folder=tmp_path).step == 0


@pytest.mark.parametrize("other", [{}, {"thin": 2, "most": 7}])
def test_two_collectors_in_one_folder_never_replace_each_other_s_files(other, tmp_path):
    first, second = Samples(model_of(1.0), folder=tmp_path), Samples(model_of(2.0), folder=tmp_path, **other)
    first.take()
    first.take()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises((FileExistsError, ValueError), match=r"another collector|made with"):
        go_on(second, 2)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_file_that_another_collector_is_just_writing_is_left_to_it(tmp_path):
    samples = collect(1, folder=tmp_path)
    part = tmp_path / "sample-000000000002.pt.part"
    part.write_bytes(b"by another")
    with pytest.raises(FileExistsError, match="another collector uses this folder"):
        samples.take()
    assert part.read_bytes() == b"by another"
    assert not (tmp_path / "sample-000000000002.pt").exists()


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    samples = collect(3, folder=tmp_path)

    def full(state, file):
        file.write(b"some")
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="no space left"):
        samples.take()
    assert {path.name for path in tmp_path.iterdir()} == {
        "samples.json",
        *(f"sample-{n:012d}.pt" for n in (1, 2, 3)),
    }
    assert samples.steps == [1, 2, 3]


def test_the_folder_stays_the_same_when_the_program_changes_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    samples = Samples(model_of(0.0), folder="kept")
    samples.take()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    samples.take()
    assert len(list(samples)) == len(list((tmp_path / "kept").glob("*.pt"))) == 2


class Executed:
    def __reduce__(self):
        return print, ("executed",)


def test_nothing_in_a_sample_file_is_executed(tmp_path, capsys):
    samples = collect(1, folder=tmp_path)
    torch.save({"0.weight": Executed()}, tmp_path / "sample-000000000001.pt")
    with pytest.raises(Exception, match=r"[Ww]eights"):
        list(samples)
    assert "executed" not in capsys.readouterr().out


class Tied(torch.nn.Module):
    """Two layers with one weight."""

    def __init__(self, size=3):
        super().__init__()
        self.one, self.two = (torch.nn.Linear(size, size, bias=False) for _ in range(2))
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(self.one(x))


@pytest.mark.parametrize("on_disk", [False, True])
def test_tied_weights_are_stored_once_and_predicted_with(on_disk, tmp_path):
    model, x = Tied(300), torch.randn(4, 300)
    samples = Samples(model, folder=tmp_path if on_disk else None)
    said = model(x).detach().double()
    samples.take()
    (state,) = samples
    assert state["one.weight"].data_ptr() == state["two.weight"].data_ptr()
    assert not on_disk or samples.folder.joinpath("sample-000000000001.pt").stat().st_size < 1.1 * 4 * 300**2
    with torch.no_grad():
        model.one.weight.zero_()
    told = predict(model, samples, x, task="regression")
    torch.testing.assert_close(told.mean, said)
    apart = {"one.weight": 2 * torch.eye(300), "two.weight": 3 * torch.eye(300)}
    torch.testing.assert_close(predict(model, [apart], x, task="regression").mean, 6 * x.double())


class Extra(torch.nn.Linear):
    """A layer with extra state, and with buffers that its forward alters."""

    def __init__(self, extra=None):
        super().__init__(2, 2)
        self.extra = extra
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)
        self.register_buffer("replaced", torch.zeros(1), persistent=False)

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state

    def forward(self, x):
        self.calls += 1
        self.scratch += 1
        self.replaced = self.replaced + 1
        return super().forward(x)


@pytest.mark.parametrize("extra", [{"text": "anything"}, torch.ones(3)], ids=["dict", "tensor"])
@pytest.mark.parametrize("nested", [False, True])
def test_extra_state_is_no_part_of_a_sample(extra, nested, tmp_path):
    model = torch.nn.Sequential(Extra(extra)) if nested else Extra(extra)
    samples = Samples(model, folder=tmp_path)
    samples.take()
    assert all("extra" not in name for state in samples for name in state)
    x = torch.randn(3, 2)
    said = predict(model, samples, x, task="regression").mean
    for state in (model.state_dict(), {**model.state_dict(), "epoch": 3}):
        torch.testing.assert_close(predict(model, [state], x, task="regression").mean, said)


def test_a_forward_that_alters_buffers_alters_neither_model_nor_samples():
    model = Extra()
    samples = Samples(model)
    samples.take()
    for _ in range(2):
        predict(model, samples, torch.randn(3, 2), task="classes")
    assert [buffer.item() for _, buffer in model.named_buffers()] == [0, 0, 0]
    assert [state["calls"].item() for state in samples] == [0]


def test_samples_of_another_model_are_refused_by_name():
    model, x = torch.nn.Linear(2, 3), torch.randn(5, 2)
    (state,) = states(1)
    with pytest.raises(ValueError, match=r"not of this model: they lack 'bias'\. Predict"):
        predict(model, [{"weight": state["weight"]}], x, task="classes")
    with pytest.raises(ValueError, match=r"not of this model: the model has no 'more'\. Predict"):
        predict(model, [{**state, "more": torch.zeros(1)}], x, task="classes")
    for prefix in ("_orig_mod.", "module."):
        wrapped = {prefix + name: value for name, value in state.items()}
        told = (
            f"lack 'weight', 'bias' and the model has no '{prefix}weight', '{prefix}bias'.*the same wrapper"
        )
        with pytest.raises(ValueError, match=told):
            predict(model, [wrapped], x, task="classes")
        around = torch.nn.Module()
        around.add_module(prefix[:-1], model)
        around.forward = model.forward
        assert torch.equal(
            predict(around, [wrapped], x, task="classes").mean,
            predict(model, [state], x, task="classes").mean,
        )
    many = {f"w{i}": torch.zeros(1) for i in range(8)}
    with pytest.raises(ValueError, match="has no 'w0', 'w1', 'w2', 'w3', 'w4' and 3 more"):
        predict(model, [many], x, task="classes")
    with pytest.raises(
        ValueError, match=r"other shapes have 'weight', 'bias' \(\(4, 2\) in the sample, \(3, 2\)"
    ):
        predict(model, [torch.nn.Linear(2, 4).state_dict()], x, task="classes")
    with pytest.raises(TypeError, match=r"a list of states .* got one that is 'weight' of type str"):
        predict(model, state, x, task="classes")
    with pytest.raises(TypeError, match="model must be a torch module, got 'model'"):
        predict("model", [state], x, task="classes")


class Squeezed(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x)[:, 0]


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_outputs_without_an_axis_of_columns_are_one_column(task):
    flat, column, x = Squeezed(2, 1), torch.nn.Linear(2, 1), torch.randn(5, 2)
    own = [torch.nn.Linear(2, 1).state_dict() for _ in range(4)]
    for one, two in zip(predict(flat, own, x, task=task), predict(column, own, x, task=task), strict=True):
        assert one is two is None or torch.equal(one, two)
    told = predict(flat, own, x, task=task)
    assert told.mean.shape == told.variance.shape == (5, 1)
    assert told.entropy.shape == (5,)


@pytest.mark.parametrize("model", [torch.nn.Linear(2, 1), Squeezed(2, 3)], ids=["one column", "no column"])
def test_one_column_is_not_classes(model):
    with pytest.raises(ValueError, match=r"two or more classes, .* say task='binary'"):
        predict(model, [model.state_dict()], torch.randn(5, 2), task="classes")


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda said: {"logits": said}, "got dict: wrap it"),
        (lambda said: (said, said), "got tuple: wrap it"),
        (lambda said: said.argmax(-1), r"got a tensor of torch.int64, \(5,\): wrap it"),
        (lambda said: said.mean(), r"got a tensor of torch.float32, \(\): wrap it"),
    ],
)
def test_outputs_that_are_not_one_tensor_of_numbers_are_refused(made, told):
    model = torch.nn.Linear(2, 3)
    model.forward = lambda x: made(x @ model.weight.T)
    with pytest.raises(TypeError, match=f"one tensor of logits or values, .*{told}"):
        predict(model, [model.state_dict()], torch.randn(5, 2), task="binary")


class Stubborn(torch.nn.Module):
    def train(self, mode=True):
        if not mode:
            raise RuntimeError("never evaluated")
        return super().train(mode)


def test_modes_are_as_they_were_if_a_module_refuses_to_be_evaluated():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), Stubborn())
    with pytest.raises(RuntimeError, match="never evaluated"):
        predict(model, [model.state_dict()], torch.randn(5, 2), task="classes")
    assert all(module.training for module in model.modules())


def logits(model, rows):
    """States of a linear model without inputs that matter: its bias is the row."""
    return [{"weight": torch.zeros(len(row), 2), "bias": torch.tensor(row)} for row in rows]


def test_the_entropy_is_noise_of_the_data_and_disagreement_of_the_samples():
    """By hand: samples that are sure and disagree, that are unsure and agree, and between."""
    model, x = torch.nn.Linear(2, 3), torch.randn(1, 2)
    far = 1000.0
    told = predict(model, logits(model, [[far, 0.0, 0.0], [0.0, far, 0.0]]), x, task="classes")
    got = [told.entropy.item(), told.expected_entropy.item(), told.mutual_information.item()]
    assert got == pytest.approx([math.log(2), 0, math.log(2)])
    told = predict(model, logits(model, [[5.0, 5.0, -far]] * 3), x, task="classes")
    got = [told.entropy.item(), told.expected_entropy.item(), told.mutual_information.item()]
    assert got == pytest.approx([math.log(2), math.log(2), 0], abs=1e-12)
    told = predict(torch.nn.Linear(2, 1), logits(model, [[math.log(3)], [-math.log(3)]]), x, task="binary")
    own = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    got = [told.entropy.item(), told.expected_entropy.item(), told.mutual_information.item()]
    assert got == pytest.approx([math.log(2), own, math.log(2) - own], abs=1e-6)
    told = predict(torch.nn.Linear(2, 1), logits(model, [[1.0], [3.0]]), x, task="regression")
    assert told.expected_entropy is told.mutual_information is None
    assert told.entropy.item() == pytest.approx(0.5 * math.log(2 * math.pi * math.e))


def test_disagreement_is_never_negative():
    rng, average = np.random.default_rng(0), Average("classes")
    p = rng.dirichlet(np.ones(3), 500)
    for _ in range(7):
        average.add(p * (1 + 1e-16 * rng.integers(-5, 5, p.shape)))
    told = average.prediction()
    assert (told.entropy < told.expected_entropy).any()  # by rounding
    assert (told.mutual_information >= 0).all()
    assert (told.mutual_information < 1e-12).all()


def test_no_gradients_are_recorded():
    model, x = torch.nn.Linear(2, 3), torch.randn(5, 2, requires_grad=True)
    assert not predict(model, [dict(model.named_parameters())], x, task="classes").mean.requires_grad


def test_one_sample_is_in_memory_at_a_time_and_training_may_go_on_between():
    model, x = torch.nn.Linear(2, 3), torch.randn(5, 2)
    alive = []

    def training():
        for _ in range(20):
            assert model.training
            model(x).square().mean().backward()  # gradients are recorded
            state = {name: value.detach().clone() for name, value in model.state_dict().items()}
            alive.append(weakref.ref(state["weight"]))
            yield state
            del state
            assert sum(ref() is not None for ref in alive) <= 1

    predict(model, training(), x, task="classes")
    assert len(alive) == 20


def peak(call):
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_averages_need_no_more_memory_for_more_samples():
    def averaged(count):
        rng, average = np.random.default_rng(0), Average("classes")
        for _ in range(count):
            average.add(rng.dirichlet(np.ones(10), 2000))
        return average.prediction()

    averaged(1)
    few, many = peak(lambda: averaged(5)), peak(lambda: averaged(100))
    assert many < few + 2000 * 10 * 8 / 2


def test_the_names_can_be_had_without_torch():
    code = (
        "import sys, heatbath as hb; from heatbath.prediction import scores; "
        "hb.Samples; hb.predict; scores.accuracy([0.3], [0]); "
        "assert not {'torch', 'xarray', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (hb.Samples, hb.predict) == (ht.Samples, ht.predict) == (Samples, predict)


def arrays(seed=0, rows=60):
    return np.random.default_rng(seed).standard_normal((rows, 2))


PROBLEMS = {
    "binary": SPIRALS,
    "classes": hb.datasets.from_arrays(3 * arrays() + 1, np.arange(60) % 3, standardise=True),
    "regression": hb.datasets.from_arrays(arrays() * 3, 10 + 7 * arrays(1)[:, 0], standardise=True),
}


def trained(problem=SPIRALS, **options):
    settings = {"steps": 60, "batch": 10, "chains": 3, "seed": 1, "record": 1, **options}
    partition = hb.Partition(hb.Langevin(gamma=1.0, tau=0.05), h=0.3)
    return hb.train(problem, SMALL, partition, **settings)


def by_hand(said, task):
    """(networks, data, outputs) -> what a Prediction should hold."""
    mean, variance = said.mean(axis=0), said.var(axis=0)
    if task == "regression":
        return mean, variance, 0.5 * np.log(2 * math.pi * math.e * variance).sum(axis=-1), None, None

    def entropy(p):
        p = np.concatenate([p, 1 - p], axis=-1) if task == "binary" else p
        return -(p * np.log(p)).sum(axis=-1)

    whole, expected = entropy(mean), entropy(said).mean(axis=0)
    return mean, variance, whole, expected, whole - expected


def check(told, expected, **tolerance):
    for name, got, wanted in zip(told._fields, told, expected, strict=True):
        if wanted is None:
            assert got is None
        else:
            np.testing.assert_allclose(got, wanted, err_msg=name, **tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_a_run_s_predictions_are_averages_over_its_samples_chains_or_steps(problem, dtype):
    X = 2 * arrays(2, rows=50)
    run = trained(problem, samples=20, burn_in=40, average=X, dtype=dtype)
    assert run.plan.thin == 1
    exact = {"rtol": 1e-10, "atol": 1e-12}
    over_samples = by_hand(run.outputs(X, samples=True).reshape(60, 50, -1), problem.task)
    check(run.predict(X), over_samples, **exact)
    check(run.predict(X, over="chains"), by_hand(run.outputs(X), problem.task), **exact)
    rough = {"rtol": 1e-3, "atol": 1e-5} if dtype == "float32" else exact
    check(run.predict(over="steps"), [*over_samples[:3], None, None], **rough)
    assert not np.allclose(over_samples[1], by_hand(run.outputs(X), problem.task)[1], rtol=1e-2)


def test_the_standard_deviation_is_the_root_of_the_variance_of_arrays_and_tensors():
    said = trained(samples=5).predict(arrays())
    np.testing.assert_array_equal(said.sd, np.sqrt(said.variance))
    tensors = said._replace(variance=torch.as_tensor(said.variance))
    assert torch.equal(tensors.sd, tensors.variance.sqrt())


def test_the_latest_samples_may_be_asked_alone():
    run, X = trained(samples=10), arrays()
    latest = run.outputs(X, samples=True)[:, -4:].reshape(-1, 60, 1)
    check(run.predict(X, latest=4), by_hand(latest, "binary"), rtol=1e-9, atol=1e-12)
    check(run.predict(X, latest=99), run.predict(X), rtol=0, atol=0)


def test_many_data_are_asked_in_chunks_and_none_or_one_is_fine(monkeypatch):
    run, X = trained(samples=5), arrays(3, rows=1000)
    whole = run.predict(X)
    monkeypatch.setattr(
        committee, "CHUNK", 20 * 300
    )  # rows of 20 hidden units, and 1000 is no multiple of 300
    check(run.predict(X), whole, rtol=1e-12, atol=1e-14)
    check(run.predict(X[0]), [part[:1] for part in whole], rtol=1e-12, atol=1e-14)
    assert run.predict(X[:0]).mean.shape == (0, 1)


def test_a_run_s_predictions_need_no_more_memory_for_more_samples():
    X = arrays(4, rows=20_000)
    few, many = trained(samples=2), trained(samples=60)
    few.predict(X[:10])
    least, most = (peak(lambda run=run: run.predict(X)) for run in (few, many))
    assert most < least + 20_000 * 8 / 2
    assert most < 20_000 * 8 * 30  # and it is far from all outputs, 180 times this number of data


def test_chains_that_diverged_do_not_count():
    start = np.tile(SMALL.start(2, 1, [0], 1), (3, 1))
    start[1, 60:] = 3e38
    X = arrays(5)
    with pytest.warns(RuntimeWarning, match="diverged"):
        run = trained(start=start, average=X, samples=60)
    left = run.outputs(X, samples=True)[[0, 2]].reshape(120, 60, 1)
    check(run.predict(X), by_hand(left, "binary"), rtol=1e-9, atol=1e-12)
    check(run.predict(X, over="chains"), by_hand(run.outputs(X)[[0, 2]], "binary"), rtol=1e-9, atol=1e-12)
    check(run.predict(over="steps"), [*by_hand(left, "binary")[:3], None, None], rtol=1e-3, atol=1e-6)
    lost = replace(run, data=run.data.assign(died=run.data["died"] * 0 + 3))
    with pytest.raises(ValueError, match="all chains of this run diverged"):
        lost.predict(X)


def test_what_a_run_cannot_say_is_refused():
    run, X = trained(average=arrays(), burn_in=50), arrays()
    with pytest.raises(ValueError, match=r"train with samples=N, .* or predict over='chains'"):
        run.predict(X, over="samples")
    check(run.predict(X), run.predict(X, over="chains"), rtol=0, atol=0)  # what there is
    with pytest.raises(ValueError, match="over must be one of 'samples', 'chains', 'steps', got 'time'"):
        run.predict(X, over="time")
    with pytest.raises(TypeError, match="leave X out"):
        run.predict(X, over="steps")
    with pytest.raises(TypeError, match="X is needed"):
        run.predict(over="chains")
    with pytest.raises(
        ValueError, match=r"X must be \(examples, 2 features\), got an array of shape \(4, 3\)"
    ):
        run.predict(np.zeros((4, 3)), over="chains")
    with pytest.raises(ValueError, match="X must be finite"):
        run.predict([[0.0, np.nan]], over="chains")
    with pytest.raises(ValueError, match="at step 30, in the burn-in of 50; resume it"):
        replace(run, step=30).predict(over="steps")
    with pytest.raises(ValueError, match="train with average=X"):
        trained().predict(over="steps")
    with pytest.raises(ValueError, match="latest must be a whole number >= 1, got 0"):
        trained(samples=5).predict(X, latest=0)
    grid = hb.Partition(hb.Langevin(gamma=1.0, tau=[0.01, 0.1]), h=0.3)
    sweep = hb.sweep(SPIRALS, SMALL, grid, steps=20, batch=10, chains=2)
    with pytest.raises(
        ValueError, match=r"differ in tau: select one of its 2 points first, as in run.select\(tau=0.01\)"
    ):
        sweep.predict(X, over="chains")
    assert sweep.select(tau=0.1).predict(X, over="chains").mean.shape == (60, 1)


THREE = [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.2, 0.6, 0.2]]
TRUE = [0, 1, 0, 2]


@pytest.mark.parametrize("kind", [list, np.float32, torch.float32, torch.bfloat16], ids=str)
def test_scores_of_classes_by_hand(kind):
    if kind is list:
        p, y, close = THREE, TRUE, 1e-12
    elif kind is np.float32:
        p, y, close = np.float32(THREE), np.array(TRUE)[:, None], 1e-6
    else:
        p, y, close = torch.tensor(THREE, dtype=kind, requires_grad=True), torch.tensor(TRUE), 1e-2
    assert scores.accuracy(p, y) == 0.5
    assert scores.log_score(p, y) == pytest.approx(-math.log(0.5 * 0.8 * 0.3 * 0.2) / 4, rel=close)
    squares = (0.25 + 0.09 + 0.04) + (0.01 + 0.04 + 0.01) + (0.49 + 0.09 + 0.16) + (0.04 + 0.36 + 0.64)
    assert scores.brier_score(p, y) == pytest.approx(squares / 4, rel=close)
    # 5 bins: (0.2, 0.4] has 0.4, wrong; (0.4, 0.6] has 0.5, right, and 0.6, wrong; (0.6, 0.8] has 0.8, right
    if kind is list:
        assert scores.calibration_error(p, y, bins=5) == pytest.approx((0.4 + 2 * 0.05 + 0.2) / 4)


@pytest.mark.parametrize("column", [False, True])
def test_scores_of_two_classes_by_hand(column):
    p, y = np.array([0.9, 0.4, 0.2, 0.6]), np.array([1.0, 1.0, 0.0, 0.0])
    p = p[:, None] if column else p
    assert scores.accuracy(p, y) == 0.5
    assert scores.log_score(p, y) == pytest.approx(-math.log(0.9 * 0.4 * 0.8 * 0.4) / 4)
    assert scores.brier_score(p, y) == pytest.approx((0.01 + 0.36 + 0.04 + 0.36) / 4)
    both = np.column_stack([1 - p, p])
    assert scores.brier_score(both, y) == pytest.approx(2 * scores.brier_score(p, y))
    for score in (scores.accuracy, scores.log_score, scores.calibration_error):
        assert score(both, y) == pytest.approx(score(p, y))
    # two bins of confidence above 0.5 of four: (0.5, 0.75] has 0.6 twice, wrong; above 0.9 and 0.8, right
    found = scores.reliability(p, y, bins=4)
    np.testing.assert_array_equal(found.count, [0, 0, 2, 2])
    np.testing.assert_allclose(found.confidence, [np.nan, np.nan, 0.6, 0.85])
    np.testing.assert_allclose(found.accuracy, [np.nan, np.nan, 0, 1])
    assert scores.calibration_error(p, y, bins=4) == pytest.approx((2 * 0.6 + 2 * 0.15) / 4)


def test_bins_are_closed_on_the_right_and_15_unless_said():
    p = np.array([[0.5, 0.5], [0.75, 0.25], [1.0, 0.0]])
    np.testing.assert_array_equal(scores.reliability(p, [0, 0, 0], bins=4).count, [0, 1, 1, 1])
    assert len(scores.reliability(p, [0, 0, 0]).count) == 15
    assert scores.reliability(p, [0, 0, 0], bins=1).count.tolist() == [3]
    p, y = drawn(2000)
    assert scores.calibration_error(p, y) == scores.calibration_error(p, y, bins=15)
    assert scores.calibration_error(p, y) != scores.calibration_error(p, y, bins=10)


def test_of_equally_probable_classes_the_first_counts():
    assert scores.accuracy([0.5, 0.5], [0, 1]) == 0.5
    assert scores.accuracy([[0.4, 0.4, 0.2]] * 2, [0, 0]) == 1


def test_an_example_held_to_be_impossible_costs_36_nats():
    for p in ([0.0], [1e-300], [[1.0, 0.0]]):
        assert scores.log_score(p, [1]) == pytest.approx(52 * math.log(2))
    assert scores.log_score([1e-15], [1]) == pytest.approx(15 * math.log(10))


def drawn(n=200_000, classes=4):
    """True probabilities of classes, and labels drawn with them."""
    rng = np.random.default_rng(7)
    p = rng.dirichlet(np.ones(classes), n)
    return p, (rng.random((n, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)


def test_a_calibrated_predictor_has_no_calibration_error_and_a_wrong_one_its_own():
    """15 bins of 200,000 data leave at most about sqrt(15/n) = 0.009; the controls are far above."""
    p, y = drawn()
    assert scores.calibration_error(p, y) < 0.009
    assert scores.calibration_error(drawn(2000)[0], drawn(2000)[1]) > scores.calibration_error(p, y)
    q = p[:, :1]
    label = (y == 0).astype(int)
    assert scores.calibration_error(q, label) < 0.009
    for claimed, truth in ((0.9, 0.7), (0.6, 0.95)):
        hits = np.random.default_rng(1).random(200_000) < truth
        error = scores.calibration_error(np.full(200_000, claimed), hits)
        assert error == pytest.approx(abs(claimed - truth), abs=5 * math.sqrt(truth * (1 - truth) / 200_000))
    sharp = p**3 / (p**3).sum(axis=1, keepdims=True)
    claim, share = sharp.max(axis=1).mean(), p.max(axis=1).mean()  # it claims too much in every bin
    assert scores.calibration_error(sharp, y) == pytest.approx(claim - share, abs=0.005)
    assert claim - share > 0.1


def test_the_log_score_of_the_true_probabilities_is_their_entropy_and_of_others_it_is_more():
    p, y = drawn()
    entropy = -(p * np.log(p)).sum(axis=1).mean()
    error = np.log(p[np.arange(len(y)), y]).std() / math.sqrt(len(y))
    assert abs(scores.log_score(p, y) - entropy) < 5 * error
    blurred = 0.8 * p + 0.05
    assert scores.log_score(blurred, y) > entropy + 10 * error
    assert scores.brier_score(blurred, y) > scores.brier_score(p, y)


def test_scores_of_a_regression_by_hand():
    mean, y, variance = [1.0, 2.0, 4.0], np.array([[1.0], [4.0], [3.0]]), torch.tensor([1.0, 4.0, 0.25])
    assert scores.rmse(mean, y) == pytest.approx(math.sqrt(5 / 3))
    terms = [0.0, 0.5 * math.log(4) + 0.5, 0.5 * math.log(0.25) + 2]
    assert scores.gaussian_log_score(mean, variance, y) == pytest.approx(
        0.5 * math.log(2 * math.pi) + sum(terms) / 3
    )
    two = [np.tile(np.reshape(a, (3, 1)), 2) for a in (mean, variance.numpy(), y)]
    assert scores.gaussian_log_score(*two) == pytest.approx(2 * scores.gaussian_log_score(mean, variance, y))
    assert scores.rmse(two[0], two[2]) == pytest.approx(scores.rmse(mean, y))


def test_the_gaussian_log_score_of_the_true_law_is_its_entropy():
    rng = np.random.default_rng(3)
    mean, variance = rng.standard_normal(100_000), rng.uniform(0.1, 3, 100_000)
    y = mean + np.sqrt(variance) * rng.standard_normal(100_000)
    entropy = 0.5 * np.log(2 * math.pi * math.e * variance).mean()
    assert abs(scores.gaussian_log_score(mean, variance, y) - entropy) < 5 * math.sqrt(0.5 / 100_000)
    assert scores.gaussian_log_score(mean, 2 * variance, y) > entropy + 0.05


@pytest.mark.parametrize(
    ("p", "y", "told"),
    [
        ([1.5], [1], r"between 0 and 1 \(got 1.5 to 1.5\).*softmax first"),
        ([-0.1], [1], "between 0 and 1"),
        ([[0.5, 0.6]], [1], "sum to 1 in each row"),
        ([[0.2, 0.2]], [1], "sum to 1 in each row"),
        ([0.5, np.nan], [1, 0], "probabilities must be finite"),
        ([0.5], [2], "indices of classes, 0 to 1, got 2 to 2"),
        ([[0.2, 0.3, 0.5]], [-1], "indices of classes, 0 to 2"),
        ([0.5], [0.5], "indices of classes"),
        ([0.5, 0.5], [1], r"one for each of the 2 examples, got shape \(1, 1\)"),
        ([[0.5, 0.5]], [[1, 0]], "one for each of the 1 examples"),
        ([], [], "at least one example"),
        (["a"], [1], "array of numbers"),
        ([[[0.5]]], [1], "1 or 2 axes"),
    ],
)
def test_probabilities_and_labels_that_cannot_be_are_refused(p, y, told):
    for score in (scores.accuracy, scores.log_score, scores.brier_score, scores.calibration_error):
        with pytest.raises(ValueError, match=told):
            score(p, y)


def test_rounding_is_not_refused():
    assert scores.log_score([1 + 1e-7], [1]) == 0
    assert scores.accuracy([[0.5, 0.495], [-1e-9, 1.0]], [0, 1]) == 1


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match=r"one shape, .*; got mean \(3, 1\), targets \(2, 1\)"):
        scores.rmse([1, 2, 3], [1, 2])
    with pytest.raises(
        ValueError, match="variance must be > 0 everywhere, got 0: add the variance of the noise"
    ):
        scores.gaussian_log_score([1, 2], [0, 1], [1, 2])
    with pytest.raises(ValueError, match="bins must be a whole number >= 1"):
        scores.calibration_error([0.5], [1], bins=0)


def test_samples_say_what_they_are(tmp_path):
    samples = Samples(torch.nn.Linear(2, 1), burn_in=2, thin=3, most=10)
    for _ in range(9):
        samples.take()
    assert (
        repr(samples)
        == "Samples(2 of at most 10 states of Linear, every 3 steps after 2, at step 9, in memory)"
    )
    assert repr(Samples(torch.nn.Linear(2, 1), folder=tmp_path)).endswith(f"at step 0, in {tmp_path})")
