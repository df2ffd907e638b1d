"""Options of the command line: how they are read, completed and written."""

import inspect

import pytest

from heatbath.cli import main, options
from heatbath.runs.serialise import RECIPES


def completions(capsys, monkeypatch, words):
    """Return what the shell offers to complete the last of some words."""
    monkeypatch.setenv("_HEATBATH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(["heatbath", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with pytest.raises(SystemExit):
        main([])
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "--method", "ada"], ["adam"]),
        (["compare", "--method", "lo"], ["lol"]),
        (["tune", "--method", "lo"], ["lol"]),
        (["sweep", "--problem", "sp"], ["spirals"]),
        (["train", "--task", "cou"], ["counts"]),
        (["reproduce", "equi"], ["equipartition"]),
        (["train", "--momenta", "t"], ["thermal"]),
    ],
)
def test_the_shell_completes_names(words, expected, capsys, monkeypatch):
    assert completions(capsys, monkeypatch, words) == expected


def test_all_problems_are_offered():
    assert options.completing("--problem")("") == list(RECIPES)
    assert options.completing("--hidden") is None


def test_the_words_of_options_are_read_as_the_values_they_were_made_of():
    values = {"hidden": [20, 10], "activation": "tanh", "scale": 0.5}
    words = options.option_words("network", values | {"unknown": 1})
    assert words == ["--hidden", "20,10", "--activation", "tanh", "--init-scale", "0.5"]
    settings = {setting.flag: setting for setting in options.SETTINGS if setting.section == "network"}
    pairs = zip(words[::2], words[1::2], strict=True)
    assert options.sections_of({settings[flag]: text for flag, text in pairs}) == {"network": values}


def test_truth_values_and_several_columns_are_words_of_their_own():
    words = options.option_words("problem", {"target": ["a", "b"], "ignore": "c", "standardise": False})
    assert words == ["--target", "a", "--target", "b", "--ignore", "c", "--no-standardise"]


def test_a_command_has_the_options_of_its_sections_and_no_others():
    @options.takes_settings("network")
    def command(options, out=None):
        return None

    names = list(inspect.signature(command).parameters)
    assert names == ["out", "hidden", "activation", "init", "init_scale"]
