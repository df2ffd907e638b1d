"""Files of tensors: complete, checked, and never another kind's."""

import pytest
import torch

import heatbath.torch as ht
from heatbath.torch.sampling import file
from tests.torch.sampling.models import QUIET, make_network, make_sampler


@QUIET
def test_files_are_safetensors_and_an_altered_file_is_refused(tmp_path):
    from safetensors.torch import load_file

    path, bad = tmp_path / "sampler.safetensors", tmp_path / "bad.safetensors"
    make_sampler().run(steps=3).save(path)
    assert load_file(path)["single/0.weight"].shape == (5, 2)
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    places = [
        0,
        9,
        8 + content[8 : 8 + size].index(b"sha256") + 12,
        8 + content[8:].index(b"gradients"),
        size + 8,
    ]
    for place in [*places, len(content) - 1]:
        bad.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ValueError, match=r"bad.safetensors is (damaged|not a file of a sampler)"):
            ht.Sampler.load(bad, make_network())
    for kept in (0, 5, size, len(content) - 3):
        bad.write_bytes(content[:kept])
        with pytest.raises(ValueError, match="not a file of a sampler"):
            ht.Sampler.load(bad, make_network())
    torch.save({"a": 1}, bad)
    with pytest.raises(ValueError, match="not a file of a sampler"):
        ht.Sampler.load(bad, make_network())
    with pytest.raises(ValueError, match="not a sampler of this model"):
        ht.Sampler.load(path, torch.nn.Linear(2, 2))
    with pytest.raises(OSError, match="cannot be read"):
        ht.Sampler.load(tmp_path / "nothing", make_network())


def test_tensors_and_settings_come_back_and_shared_memory_is_written_twice(tmp_path):
    path, shared = tmp_path / "a.safetensors", torch.arange(6.0)
    tensors = {"whole": shared, "part": shared[2:], "column": shared.reshape(2, 3).T[0]}
    file.write(path, "sampler", tensors, {"steps": [1, 2]})
    found, settings = file.read(path, "sampler")
    assert settings == {"steps": [1, 2]}
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_a_file_of_another_kind_is_neither_read_nor_replaced(tmp_path):
    path = tmp_path / "a.safetensors"
    file.write(path, "portrait", {"x": torch.ones(1)}, {})
    content = path.read_bytes()
    with pytest.raises(ValueError, match="not a file of a sampler, but of a portrait"):
        file.read(path, "sampler")
    with pytest.raises(FileExistsError, match="left alone: choose another name"):
        file.write(path, "sampler", {"x": torch.zeros(1)}, {})
    assert path.read_bytes() == content


def test_a_file_of_a_later_version_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    monkeypatch.setattr(file, "FORMAT", file.FORMAT + 1)
    file.write(path, "sampler", {}, {})
    monkeypatch.undo()
    with pytest.raises(ValueError, match=f"reads up to {file.FORMAT}: update heatbath"):
        file.read(path, "sampler")


@pytest.mark.parametrize(
    "other", [{"b": torch.zeros(2)}, {"a": torch.zeros(2, dtype=torch.int32)}, {"a": torch.zeros(2, 1)}]
)
def test_a_digest_depends_on_names_types_shapes_and_values(other):
    tensors = {"a": torch.zeros(2)}  # whose bytes are those of int32
    assert file.digest(tensors) == file.digest({"a": torch.zeros(2)})
    assert file.digest(tensors) != file.digest(other)
    assert file.digest(tensors) != file.digest({"a": torch.tensor([0.0, 1.0])})
