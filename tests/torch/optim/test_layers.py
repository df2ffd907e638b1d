"""Rules find hidden layers and the output layer, and ask where the order of layers may mislead."""

import copy
import warnings

import pytest
import torch
from torch import nn

import heatbath.torch as ht
from tests.torch.optim.models import compute_gradients, make_steps


def test_parametrised_layers_stay_whole():
    norm = torch.nn.utils.parametrizations.weight_norm
    model = nn.Sequential(norm(nn.Linear(2, 4)), nn.Tanh(), norm(nn.Linear(4, 1)))
    for given in (model, list(model.named_parameters())):
        optimizer = ht.AdLaLa(given)
        assert [(g["part"], g["name"], len(g["params"])) for g in optimizer.param_groups] == [
            ("hidden", "0", 3),
            ("output", "2", 3),
        ]


def test_an_output_layer_that_cannot_be_meant_is_refused():
    model = nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4))
    with pytest.raises(ValueError, match="has only vectors"):
        ht.AdLaLa(model.named_parameters())
    with pytest.raises(ValueError, match="nothing is left for the hidden layers"):
        ht.AdLaLa(model, output=model)
    with pytest.raises(ValueError, match="has parameters that the model doesn't have"):
        ht.AdLaLa(model, output=nn.Linear(1, 1))


class HeadFirst(nn.Module):
    """A module whose layers are declared in another order than they act in."""

    def __init__(self, width=20):
        super().__init__()
        self.head = nn.Linear(20, width)
        self.body = nn.Sequential(nn.Linear(2, 20), nn.Tanh())

    def forward(self, x):
        return self.head(self.body(x))


class BodyFirst(HeadFirst):
    def __init__(self):
        super().__init__()
        self.last = self.head
        del self.head

    def forward(self, x):
        return self.last(self.body(x))


def test_a_head_that_is_declared_before_the_body_is_asked_for():
    """Also where its shape does not tell; nothing has moved by then, and what is said is what it is."""
    model = HeadFirst()
    optimizer = ht.AdLaLa(model, seed=1)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"acts last is 'head', but 'body.0', .* output=model.head"):
        make_steps(model, optimizer, 1)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    make_steps(model, ht.AdLaLa(model, output=model.head), 1)
    right = BodyFirst()
    make_steps(right, ht.AdLaLa(right), 2)
    assert not any(module._forward_hooks for one in (model, right) for module in one.modules())


def test_a_closure_shows_the_order_too_and_a_compiled_model_does_not():
    model = HeadFirst()
    optimizer = ht.LOL(model)
    with pytest.raises(ValueError, match=r"output=model\.head"):
        optimizer.step(lambda: compute_gradients(model, optimizer))
    model = BodyFirst()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    optimizer = ht.LOL(model)
    for _ in range(3):
        compute_gradients(compiled, optimizer)
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is to go
        scripted = torch.jit.script(BodyFirst())
    make_steps(scripted, ht.LOL(scripted), 1)


@pytest.mark.parametrize("way", ["compiled", "scripted"])
def test_a_head_declared_first_is_asked_for_where_nothing_can_be_seen(way):
    """By shapes, at the first step that moves; where they do not tell, that is said, once."""

    def stepped(model):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)  # it is to go
            called = torch.jit.script(model) if way == "scripted" else model
        optimizer = ht.LOL(called)
        if way == "compiled":
            called = torch.compile(model, backend="eager", fullgraph=True)
        for _ in range(2):
            compute_gradients(called, optimizer)
            optimizer.step()

    model = HeadFirst()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"'body.0' is declared last, but another layer.*output=model\.head"):
        stepped(model)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    stepped(BodyFirst())

    class Skipping(BodyFirst):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 19), nn.Tanh())
            self.last = nn.Linear(20, 1)

        def forward(self, x):
            body = self.body(x)
            return self.last(torch.cat([body, body[:, :1]], dim=1))

    with pytest.warns(RuntimeWarning, match="cannot be seen.*'last', declared last") as told:
        stepped(Skipping())
    assert len(told) == 1


def test_a_head_declared_first_is_seen_where_only_parts_are_called():
    """Lightning's training_step calls parts of the module. A step at lr = 0 does not ask yet."""
    for kind in (HeadFirst, BodyFirst):
        model = kind()
        optimizer = ht.AdLaLa(model, seed=1)
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = 0.1
        last = model.head if kind is HeadFirst else model.last
        last(model.body(torch.ones(3, 2))).sum().backward()
        if kind is HeadFirst:
            with pytest.raises(ValueError, match=r"acts last is 'head', but 'body.0', .* output=model.head"):
                optimizer.step()
        else:
            optimizer.step()
            assert not any(module._forward_hooks for module in model.modules())


def test_what_the_order_is_seen_by_survives_copies_and_files(tmp_path):
    model = BodyFirst()
    optimizer = ht.AdLaLa(model)
    other, copied = copy.deepcopy((model, optimizer))
    torch.save(model, tmp_path / "model.pt")
    make_steps(model, optimizer, 1)
    make_steps(other, copied, 1)


def test_names_alone_are_asked_where_another_layer_takes_what_the_last_gives():
    with pytest.raises(ValueError, match=r"'body.0' is declared last, but another layer"):
        ht.AdLaLa(HeadFirst(1).named_parameters())
    autoencoder = nn.Sequential(nn.Linear(8, 2), nn.Tanh(), nn.Linear(2, 8))
    assert ht.AdLaLa(autoencoder.named_parameters()).param_groups[-1]["name"] == "2"
    model = BodyFirst()
    model.matrix = nn.Parameter(torch.zeros(3, 3))
    with pytest.raises(ValueError, match="a matrix beside its modules, 'matrix'"):
        ht.AdLaLa(model)


def test_groups_of_a_framework_are_divided_by_the_output_layer():
    """The Trainer makes groups with and without decay; they are divided by layers where they have names."""
    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 4), nn.Linear(4, 1))
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = ht.AdLaLa(groups, output=model[2])
    assert [(g["part"], g["weight_decay"], len(g["params"])) for g in optimizer.param_groups] == [
        ("hidden", 0.1, 2), ("output", 0.1, 1), ("hidden", 0.0, 2), ("output", 0.0, 1),
    ]  # fmt: skip
    make_steps(model, optimizer, 2)
    named = [{"params": list(model.named_parameters()), "lr": 0.05}]
    optimizer = ht.AdLaLa(named, output=model[2])
    assert [(g["part"], g.get("name"), g["lr"]) for g in optimizer.param_groups] == [
        ("hidden", "0", 0.05), ("hidden", "1", 0.05), ("output", None, 0.05),
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"or with output= beside them"):
        ht.AdLaLa(groups)
    with pytest.raises(ValueError, match="none of its parameters is in the groups"):
        ht.AdLaLa(groups, output=nn.Linear(4, 1))


def test_layers_are_found_in_modules_names_lists_and_groups():
    model = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 5), nn.Tanh(), nn.Linear(5, 1))
    expected = [("hidden", 2), ("hidden", 2), ("output", 2)]
    body, head = [*model[0].parameters(), *model[2].parameters()], list(model[4].parameters())

    def parts(optimizer):
        return [(group["part"], len(group["params"])) for group in optimizer.param_groups]

    assert parts(ht.AdLaLa(model)) == expected
    assert parts(ht.AdLaLa(model.named_parameters())) == expected
    assert parts(ht.AdLaLa(model, output=model[4])) == expected
    assert parts(ht.AdLaLa(hidden=body, output=head)) == [("hidden", 4), ("output", 2)]
    assert parts(ht.AdLaLa([{"params": body, "part": "hidden"}, {"params": head, "part": "output"}])) == [
        ("hidden", 4), ("output", 2),
    ]  # fmt: skip
    assert "hidden: 2: AdaptiveLangevin" in repr(ht.AdLaLa(model))


def test_tied_parameters_belong_to_their_first_owner():
    embedding, head = torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7, bias=False)
    head.weight = embedding.weight
    model = torch.nn.Sequential(embedding, torch.nn.Linear(4, 4), head)
    with pytest.raises(
        ValueError, match=r"the last layer, '1', is followed by '2', which shares its parameters"
    ):
        ht.AdLaLa(model)
    optimizer = ht.AdLaLa(model, output=model[1])
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 2]
