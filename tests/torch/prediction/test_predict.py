"""What samples of a torch model say together."""

import math
import subprocess
import sys
import weakref

import pytest
import torch

import heatbath as hb
import heatbath.torch as ht
from heatbath.torch.prediction.predict import predict
from heatbath.torch.prediction.samples import Samples
from tests.torch.prediction.models import Extra, model_of


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


def test_the_variance_of_a_prediction_includes_given_noise():
    model, x, own = torch.nn.Linear(2, 3), torch.randn(5, 2), states(7)
    bare, told = (predict(model, own, x, task="regression", noise=noise) for noise in (None, 0.3))
    assert bare.noise is None
    torch.testing.assert_close(told.noise, torch.full((3,), 0.3, dtype=torch.float64))
    torch.testing.assert_close(told.variance, bare.variance + 0.3)
    torch.testing.assert_close(told.entropy, 0.5 * torch.log(2 * math.pi * math.e * told.variance).sum(-1))
    with pytest.raises(ValueError, match="noise is for a regression, and this is 'classes'"):
        predict(model, own, x, task="classes", noise=0.3)
    with pytest.raises(ValueError, match="noise must be >= 0"):
        predict(model, own, x, task="regression", noise=-1.0)


@pytest.mark.filterwarnings("ignore::heatbath._internal.warnings.StaleStatisticsWarning")
def test_modes_and_buffers_are_restored_also_after_an_error():
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


def test_wrong_arguments_are_refused():
    model = torch.nn.Linear(2, 3)
    with pytest.raises(ValueError, match="there are no samples"):
        predict(model, [], torch.zeros(1, 2), task="classes")
    with pytest.raises(ValueError, match="task must be one of 'binary', 'classes', 'regression'"):
        predict(model, states(1), torch.zeros(1, 2), task="logits")
    with pytest.raises(TypeError, match="model must be a torch module"):
        Samples(3)
    with pytest.raises(ValueError, match="most must be a whole number >= 2"):
        Samples(model, most=1)


class Tied(torch.nn.Module):
    """A module whose two layers share one weight."""

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


def test_a_forward_pass_that_changes_buffers_changes_neither_model_nor_samples():
    model = Extra()
    samples = Samples(model)
    samples.take()
    for _ in range(2):
        predict(model, samples, torch.randn(3, 2), task="classes")
    assert [buffer.item() for _, buffer in model.named_buffers()] == [0, 0, 0]
    assert [state["calls"].item() for state in samples] == [0]


def test_the_error_for_samples_of_another_model_names_the_differences():
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
        ValueError, match=r"the shapes of 'weight', 'bias' differ \(\(4, 2\) in the sample, \(3, 2\)"
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
    with pytest.raises(ValueError, match=r"two or more classes, .* choose task='binary'"):
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


def test_modes_are_restored_if_a_module_refuses_evaluation_mode():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), Stubborn())
    with pytest.raises(RuntimeError, match="never evaluated"):
        predict(model, [model.state_dict()], torch.randn(5, 2), task="classes")
    assert all(module.training for module in model.modules())


def logits(model, rows):
    """Return states of a linear model whose inputs don't matter: its bias is the row."""
    return [{"weight": torch.zeros(len(row), 2), "bias": torch.tensor(row)} for row in rows]


def test_the_entropy_is_noise_of_the_data_and_disagreement_of_the_samples():
    """Samples are sure and disagree, are unsure and agree, or are between. The entropy is found by hand."""
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


def test_metrics_load_neither_torch_nor_the_engine():
    code = (
        "import sys; from heatbath.evaluation import metrics; metrics.accuracy([0.3], [0]); "
        "assert not {'torch', 'xarray', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (hb.Samples, hb.predict) == (ht.Samples, ht.predict) == (Samples, predict)


@pytest.mark.parametrize(
    ("task", "noise"),
    [("binary", None), ("classes", None), ("counts", None), ("regression", None), ("regression", 0.3)],
)
def test_loaders_and_arrays_give_the_predictions_of_tensors(task, noise):
    """Batches of one size and of another, with targets and without; samples that can be gone through once."""
    model, x, own = torch.nn.Linear(2, 3), torch.randn(7, 2), states(3)
    y = torch.zeros(7)
    data = torch.utils.data.TensorDataset(x, y)
    expected = predict(model, own, x, task=task, noise=noise)
    for given, samples in (
        (x.numpy(), own),
        (x.double().numpy(), own),
        (x.tolist(), own),
        (torch.utils.data.DataLoader(data, batch_size=3), own),
        (torch.utils.data.DataLoader(x, batch_size=7), own),
        ([x[:4], x[4:]], own),
        ([(x[:4].numpy(), y[:4]), (x[4:].numpy(), y[4:])].__iter__(), own),
        (torch.utils.data.DataLoader(data, batch_size=3), iter(own)),
    ):
        told = predict(model, samples, given, task=task, noise=noise)
        for value, other in zip(told, expected, strict=True):
            assert (value is None) == (other is None)
            if value is not None:
                torch.testing.assert_close(value, other, rtol=1e-6, atol=1e-7)


def test_a_loader_is_iterated_once():
    """What the samples say is of the same examples, in the order in which they came."""
    model, own, seen = torch.nn.Linear(1, 1), states_of(torch.nn.Linear(1, 1)), []

    class Shuffling:
        def __iter__(self):
            for batch in torch.randperm(6).float()[:, None].split(2):
                seen.append(batch)
                yield batch

    told = predict(model, own, Shuffling(), task="regression")
    assert len(seen) == 3
    expected = predict(model, own, torch.cat(seen), task="regression")
    assert torch.equal(told.mean, expected.mean)
    with pytest.raises(ValueError, match="the loader has no batches"):
        predict(model, own, torch.utils.data.DataLoader([]), task="regression")


def states_of(model):
    return [{name: value + k for name, value in model.state_dict().items()} for k in range(3)]
