"""Samples of a torch model: its states, kept in memory or in a folder."""

import json

import numpy as np
import pytest
import torch

from heatbath.torch.prediction.predict import predict
from heatbath.torch.prediction.samples import Samples
from tests.torch.prediction.models import Extra, model_of


def collect(steps, **options):
    """Return a model whose first weight is the number of the step, and its samples."""
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
def test_the_number_of_samples_is_limited_and_their_spacing_stays_even(on_disk, tmp_path):
    samples = collect(1000, burn_in=7, most=16, folder=tmp_path if on_disk else None)
    assert 8 <= len(samples) <= 16
    assert len(set(np.diff(samples.steps))) == 1
    assert samples.steps[0] - 7 == samples.thin
    assert [int(state["0.weight"][0, 0]) for state in samples] == samples.steps
    assert len(list(tmp_path.glob("*.pt"))) == (len(samples) if on_disk else 0)


def write_number(model, n):
    with torch.no_grad():
        model[0].weight[0, 0] = n


def take_steps(samples, steps):
    """Make further steps; the first weight is the number of the step."""
    for n in range(samples.step + 1, samples.step + steps + 1):
        write_number(samples.model, n)
        samples.take()
    return samples


@pytest.mark.parametrize("cut", [7, 10, 13, 55, 239, 519])
def test_a_restarted_program_continues_with_its_samples(cut, tmp_path):
    """The steps count on from the last sample; where the cut is at one, as if it had never stopped."""
    settings = {"burn_in": 7, "thin": 2, "most": 6}
    before = collect(cut, folder=tmp_path, **settings)
    again = Samples(model_of(0.5), folder=tmp_path, **settings)
    assert (again.steps, again.step) == (before.steps, before.steps[-1] if cut > 7 else 0)
    assert len(again) == 0 or again.thin == before.thin
    whole = collect(again.step + 300, **settings)
    take_steps(again, 300)
    assert (again.steps, again.thin) == (whole.steps, whole.thin)
    assert [int(state["0.weight"][0, 0]) for state in again] == again.steps
    assert len(list(tmp_path.glob("*.pt"))) == len(again)


@pytest.mark.parametrize("dropped", [1, 2, 3])
def test_unfinished_changes_of_a_killed_program_are_completed(dropped, tmp_path):
    """Killed while every other sample was dropped, or while one was written."""
    files = collect(12, burn_in=2, most=10, folder=tmp_path).steps
    assert files == list(range(3, 13))
    for step in files[0 : 2 * dropped : 2]:
        (tmp_path / f"sample-{step:012d}.pt").unlink()
    (tmp_path / "sample-000000000013.pt.part").write_bytes(b"half")
    samples = Samples(model_of(0.0), burn_in=2, most=10, folder=tmp_path)
    assert (samples.steps, samples.thin) == ([4, 6, 8, 10, 12], 2)
    assert not list(tmp_path.glob("*.part"))
    assert take_steps(samples, 2).steps == [4, 6, 8, 10, 12, 14]


def test_a_folder_of_other_samples_is_refused_when_it_is_opened(tmp_path):
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
            ValueError, match=r"samples\.json, which holds their settings, is missing or was altered"
        ):
            Samples(model_of(0.0), burn_in=1, folder=tmp_path)


@pytest.mark.parametrize(
    "frozen", [["0.weight"], {"0.weight": [1.0]}, {"0.weight": 1.0}, {"0.weight": ["a", 1]}]
)
def test_altered_fingerprints_in_a_folder_are_refused(frozen, tmp_path):
    samples = collect(1, folder=tmp_path)
    settings = tmp_path / "samples.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"frozen": frozen}))
    with pytest.raises(ValueError, match=r"samples\.json, which holds their settings, .* altered"):
        Samples(samples.model, folder=tmp_path)


def test_settings_of_a_folder_without_samples_are_compared(tmp_path):
    samples = collect(1, folder=tmp_path)
    (tmp_path / "sample-000000000001.pt").unlink()
    with pytest.raises(ValueError, match="made with burn_in=0"):
        Samples(samples.model, burn_in=1, folder=tmp_path)
    assert Samples(samples.model, folder=tmp_path).step == 0


@pytest.mark.parametrize("other", [{}, {"thin": 2, "most": 7}])
def test_two_collectors_in_one_folder_never_replace_files(other, tmp_path):
    first, second = Samples(model_of(1.0), folder=tmp_path), Samples(model_of(2.0), folder=tmp_path, **other)
    first.take()
    first.take()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises((FileExistsError, ValueError), match=r"another collector|made with"):
        take_steps(second, 2)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_file_that_another_collector_is_writing_is_left_alone(tmp_path):
    samples = collect(1, folder=tmp_path)
    part = tmp_path / "sample-000000000002.pt.part"
    part.write_bytes(b"by another")
    with pytest.raises(FileExistsError, match="another collector uses this folder"):
        samples.take()
    assert part.read_bytes() == b"by another"
    assert not (tmp_path / "sample-000000000002.pt").exists()


def test_a_failed_write_leaves_no_file(tmp_path, monkeypatch):
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


@pytest.mark.parametrize("extra", [{"text": "anything"}, torch.ones(3)], ids=["dict", "tensor"])
@pytest.mark.parametrize("nested", [False, True])
def test_samples_have_no_extra_state(extra, nested, tmp_path):
    model = torch.nn.Sequential(Extra(extra)) if nested else Extra(extra)
    samples = Samples(model, folder=tmp_path)
    samples.take()
    assert all("extra" not in name for state in samples for name in state)
    x = torch.randn(3, 2)
    said = predict(model, samples, x, task="regression").mean
    for state in (model.state_dict(), {**model.state_dict(), "epoch": 3}):
        torch.testing.assert_close(predict(model, [state], x, task="regression").mean, said)


def test_the_repr_of_samples_shows_count_spacing_and_place(tmp_path):
    samples = Samples(torch.nn.Linear(2, 1), burn_in=2, thin=3, most=10)
    for _ in range(9):
        samples.take()
    assert (
        repr(samples)
        == "Samples(2 of at most 10 states of Linear, every 3 steps after 2, at step 9, in memory)"
    )
    assert repr(Samples(torch.nn.Linear(2, 1), folder=tmp_path)).endswith(f"at step 0, in {tmp_path})")
