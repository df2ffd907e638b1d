"""`heatbath tune`: what it finds and writes, that interrupted searches end alike, and what mistakes say."""

import csv
import html
import io
import json
import re
import shlex
import shutil
import signal
import tomllib
import warnings
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pandas
import pytest

import heatbath as hb
from heatbath.cli import main
from heatbath.cli.display import Display
from heatbath.cli.report import figures
from heatbath.cli.tuning import make_family, prepare_tuning
from heatbath.methods.presets import SEARCHED
from heatbath.tuning import search
from heatbath.tuning.search_space import Family
from tests.processes import killed_after_writing
from tests.runs import differences

SPIRALS = ["--problem", "spirals", "--turns", "1", "--n-train", "100", "--n-test", "60", "--hidden", "8"]
SMALL = [*SPIRALS, "--steps", "80", "--batch", "10", "--candidates", "16", "--fresh", "3", "--by", "accuracy"]
METHODS = ["--method", "adlala:tau=2e-5..2e-4,sigma=0.02", "--method", "sgd"]
WHOLE = ("run.nc", "settings.toml", "summary.json", "summary.md", "table.csv")
FOUND = ("AdLaLa", "SGD")


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """Return the folder of a search by the command line."""
    folder = tmp_path_factory.mktemp("tune") / "found"
    with pytest.raises(SystemExit) as end:
        main(["tune", *SMALL, *METHODS, "--out", str(folder)])
    assert end.value.code == 0
    return folder


@pytest.fixture(scope="module")
def library_search():
    """Return the same search, made by the library."""
    problem = hb.datasets.spirals(turns=1, n_train=100, n_test=60)
    ranges = {name: SEARCHED["AdLaLa"][name] for name in ("h", "epsilon", "gamma", "tau_output")}
    adlala = Family(
        "AdLaLa",
        {"h": ranges["h"], "tau": hb.between(2e-5, 2e-4), **ranges},
        lambda values: hb.AdLaLa(sigma=0.02, **values),
        lambda values: hb.AdLaLa(sigma=0.02, **values).code,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hb.SearchEdgeWarning)
        return hb.tune(problem, hb.MLP((8,)), [adlala, "sgd"], 80, 10, candidates=16, by="accuracy")


def copy_search(folder, place):
    """Return a copy of the folder of a search."""
    return Path(shutil.copytree(folder, place))


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_the_search_is_the_library_s_and_so_are_the_fresh_runs(searched, library_search):
    table = pandas.read_csv(searched / "table.csv")
    pandas.testing.assert_frame_equal(table, library_search.table, check_like=True)
    assert len(table) == 32
    run = hb.load(searched / "run.nc")
    colder = {name: partition.cooled(72) for name, partition in library_search.partitions.items()}
    same = hb.compare(run.problem, hb.MLP((8,)), colder, 80, 10, chains=3, seed=1)
    assert run.problem.X_train.shape == (1, 100, 2)  # all of them
    assert differences(run, same) == []
    assert run.partition == colder
    names = {path.name for path in searched.iterdir()}
    drawn = ("search", "maps", "importance", "curves", "classifiers-median-run", "classifiers-mean-of-runs")
    pictures = {f"{name}.{kind}" for name in drawn for kind in ("png", "svg")}
    assert names == {*WHOLE, "report.html", "search", *pictures}


def test_the_report_has_what_was_found_the_fresh_runs_all_pictures_and_the_commands(searched):
    page = (searched / "report.html").read_text()
    told = json.loads((searched / "summary.json").read_text())
    assert f"The best is <strong>{told['best']['method']}</strong>" in page
    headings = [
        "Best candidates",
        "Fresh runs",
        "The search",
        "Training of the fresh runs",
        "Train with the best coefficients",
    ]
    assert re.findall("<h2>(.*?)</h2>", page) == [*headings, "Settings"]
    assert page.count("<img") == 6
    for method in told["search"]["methods"].values():
        assert html.escape(method["command"]) in page
    assert "search a wider range, h=0.01..28.3." in page
    assert "http" not in re.sub(r'"data:[^"]*"', "", page)


def test_the_summary_has_what_was_found_and_what_fresh_runs_are_worth(searched, library_search):
    told = json.loads((searched / "summary.json").read_text())
    assert told["best"] == {"method": library_search.winner}
    assert told["colder_from"] == 72
    for name, method in told["search"]["methods"].items():
        assert method["values"] == library_search.best[name].candidate.values
        assert method["accuracy"] == library_search.best[name].accuracy
        assert method["importance"] == library_search.importance[name]
        assert method["edges"] == library_search.edges.get(name, {})
        assert method["wider"] == {k: asdict(v) for k, v in library_search.wider.get(name, {}).items()}
    run = hb.load(searched / "run.nc")
    X, y = run.problem.X_test[0], run.problem.Y_test[0, :, 0]
    for row in told["rows"]:
        one = run.select(**row["labels"])
        last = one.accuracy("test").values[:, -1]
        assert row["test_accuracy"]["mean"] == pytest.approx(last.mean(), abs=1e-12)
        assert row["test_accuracy"]["high"] > last.mean()
        mean = one.predict(X).mean[:, 0]
        assert row["averaged"]["accuracy"]["mean"] == pytest.approx(np.mean((mean > 0.5) == y))
        loss = -np.log(np.where(y == 1, mean, 1 - mean)).mean()
        assert row["averaged"]["log_loss"]["mean"] == pytest.approx(loss)
    text = (searched / "summary.md").read_text()
    assert "colder from step 72 on: the averaged prediction of 3 networks, and means over single ones" in text
    edge = "SGD: the best values of h are at the end of its range, 2.0: search a wider range, h=0.01..28.3"
    assert edge in text
    assert "## Best of 16 candidates of each method, by accuracy on 20 % of the training examples" in text


@pytest.mark.parametrize("name", FOUND)
def test_the_command_line_that_is_given_makes_the_fresh_runs_again(
    name, searched, library_search, tmp_path, call, no_pictures
):
    """So does the Python that is given, with the colder end of the runs judged on test examples."""
    told = json.loads((searched / "summary.json").read_text())["search"]["methods"][name]
    command = told["command"]
    assert (
        f"as the fresh runs do:\n\n```\n{command}" in (searched / "summary.md").read_text() or name == "SGD"
    )
    assert command in (searched / "summary.md").read_text()
    words = shlex.split(command)
    assert words[:2] == ["heatbath", "train"]
    assert call(*words[1:], "--out", tmp_path / "run")[0] == 0
    run, fresh = hb.load(tmp_path / "run" / "run.nc"), hb.load(searched / "run.nc").select(method=name)
    assert run.partition == fresh.partition == library_search.partitions[name].cooled(72)
    assert differences(run, fresh) == []
    names = {n: getattr(hb, n) for n in ("AdLaLa", "Partition", *hb.methods.known_methods())}
    assert eval(told["code"], names) == fresh.partition


def test_a_colder_end_is_an_option_of_train_compare_and_sweep(tmp_path, call, no_pictures):
    usual = [*SPIRALS, "--steps", "20", "--chains", "1", "--colder-from", "15"]
    cold = hb.LOL().cooled(15)
    for number, (command, methods, expected) in enumerate(
        [
            ("train", ["--method", "lol"], cold),
            ("compare", ["--method", "lol", "--method", "sgd:h=0.1"], None),
            ("sweep", ["--method", "lol", "--tau", "1e-4,1e-3"], hb.LOL(tau=[1e-4, 1e-3]).cooled(15)),
        ]
    ):
        out = tmp_path / str(number)
        assert call(command, *usual, *methods, "--out", out)[0] == 0
        settings = tomllib.loads((out / "settings.toml").read_text())
        assert settings["training"]["colder_from"] == 15
        run = hb.load(out / "run.nc")
        sgd = hb.Partition(hb.SGD(), 0.1).cooled(15)
        assert run.partition == ({"LOL": cold, "SGD": sgd} if expected is None else expected)
        before = (out / "run.nc").read_bytes()
        assert call("resume", out)[0] == 0
        assert (out / "run.nc").read_bytes() == before


def test_the_temperature_of_a_colder_end_is_shown_beside_its_own_target(tmp_path, call, no_pictures):
    method = ["--method", "lala", "--h", "0.1", "--gamma", "10", "--tau", "1e-3", "--record", "200"]
    run = [*SPIRALS, *method, "--steps", "2000", "--chains", "10", "--colder-from", "1500"]
    assert call("train", *run, "--out", tmp_path / "run")[0] == 0
    (row,) = json.loads((tmp_path / "run" / "summary.json").read_text())["rows"]
    for part in row["temperatures"].values():
        assert part["target"] == pytest.approx(1e-3 / 30)
        assert 0.3 < part["mean"] / part["target"] < 3  # 15, over the second half of all steps


def test_few_candidates_of_two_coefficients_are_enough_for_a_summary(tmp_path, call, no_pictures):
    options = [*SPIRALS, "--steps", "8", "--candidates", "4", "--fresh", "0", "--method", "sgld"]
    assert call("tune", *options, "--out", tmp_path / "run")[0] == 0
    told = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert told["search"]["methods"]["SGLD"]["importance"] == {}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ["--steps", "20", "--colder-from", "20"],
            "colder_from must be a whole number >= 1 and < 20, got 20",
        ),
        (["--steps", "20", "--colder-from", "0"], "colder_from must be a whole number >= 1 and < 20, got 0"),
        (["--steps", "20", "--colder-from", "x"], "--colder-from must be a whole number, got 'x'"),
        (["--steps", "auto", "--colder-from", "9"], "colder_from needs a known number of steps"),
        (["--steps", "20", "--colder-from", "9", "--prior", "1"], "cannot be cooled"),
    ],
)
def test_a_colder_end_that_cannot_be_is_refused(options, told, refused, tmp_path):
    method = ["--method", "lala", "--h", "0.1", "--gamma", "1"]
    method += [] if "--prior" in options else ["--tau", "1e-4"]
    assert told in refused("train", *SPIRALS, *method, *options, "--out", tmp_path / "run")


def test_a_method_of_which_none_comes_to_the_end_is_told_so(tmp_path, call, svg_only, monkeypatch):
    score_candidates = search.score_candidates

    def with_diverged_finalists(candidates, run, rows):
        trials = score_candidates(candidates, run, rows)
        late = [run.step == 80 and "SGD" in trial.name for trial in trials]
        return [
            search.Trial(trial.candidate, diverged=True) if is_late else trial
            for is_late, trial in zip(late, trials, strict=True)
        ]

    monkeypatch.setattr(search, "score_candidates", with_diverged_finalists)
    options = [*SPIRALS, "--steps", "80", "--candidates", "12", "--fresh", "2", "--method", "sgd"]
    code, out, _ = call("tune", *options, "--method", "adam:beta1=0.9", "--out", tmp_path / "run")
    assert code == 0
    words = "none came to the end: 8 of its 12 candidates diverged, among them all the best"
    assert " ".join(words.split()[:5]) in out
    told = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert told["search"]["methods"]["SGD"] == {"diverged": 8, "without": words}
    assert told["best"] == {"method": "Adam"}
    assert [row["labels"]["method"] for row in told["rows"]] == ["Adam"]
    assert words in (tmp_path / "run" / "summary.md").read_text()
    assert "(none at the end)" in (tmp_path / "run" / "search.svg").read_text()
    table = pandas.read_csv(tmp_path / "run" / "table.csv")
    assert table[table.best].method.tolist() == ["Adam"]


def test_short_searches_have_no_colder_end(tmp_path, call, no_pictures):
    options = [*SPIRALS, "--steps", "8", "--candidates", "2", "--fresh", "2", "--method", "sgd"]
    code, out, _ = call("tune", *options, "--out", tmp_path / "run")
    assert code == 0
    told = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert told["colder_from"] is None
    assert "--colder-from" not in told["search"]["methods"]["SGD"]["command"]
    assert "colder" not in out


def test_command_lines_say_all_that_is_not_usual(tmp_path):
    data = tmp_path / "with space.csv"
    rows = "".join(f"{i % 7},{i % 5},{i}\n" for i in range(40))
    data.write_text(f"a,b,y\n{rows}")
    table = {"name": "momentum", "kind": "2", "h": "0.1..0.5", "mu": "0.8"}
    tuning, complete = prepare_tuning(
        {
            "problem": {"data": str(data), "target": "y", "standardise": False},
            "network": {"hidden": [3, 2], "activation": "tanh"},
            "methods": {"Momentum": table},
            "search": {"dtype": "float64", "shuffled": True, "steps": 50, "batch": 7, "seed": 4, "fresh": 0},
        }
    )
    words = shlex.split(tuning.command("Momentum", {"h": 0.25}))
    assert words == [
        "heatbath", "train", "--data", str(data), "--target", "y", "--no-standardise", "--hidden", "3,2",
        "--activation", "tanh", "--method", "momentum", "--h", "0.25", "--mu", "0.8", "--kind", "2",
        "--steps", "50", "--batch", "7", "--chains", "1", "--seed", "5", "--shuffled", "--dtype", "float64",
    ]  # fmt: skip
    assert complete["methods"]["Momentum"]["h"] == {"low": 0.1, "high": 0.5, "scale": "log"}
    assert prepare_tuning(complete)[1] == complete


def test_settings_toml_makes_the_same_files_byte_for_byte(searched, tmp_path, call, no_pictures):
    told = tomllib.loads((searched / "settings.toml").read_text())
    assert told["methods"]["AdLaLa"]["tau"] == {"low": 2e-5, "high": 2e-4, "scale": "log"}
    assert told["methods"]["AdLaLa"]["sigma"] == 0.02
    assert told["methods"]["SGD"]["h"] == asdict(hb.SGD.searched["h"])
    assert told["search"] == {
        "steps": 80, "batch": 10, "chains": 2, "candidates": 16, "by": "accuracy", "validation": 0.2,
        "seed": 0, "shuffled": False, "dtype": "float32", "fresh": 3, "cooled": True,
    }  # fmt: skip
    assert call("tune", "--settings", searched / "settings.toml", "--out", tmp_path / "again")[0] == 0
    assert differing_files(tmp_path / "again", {name: (searched / name).read_bytes() for name in WHOLE}) == []


def test_without_fresh_runs_and_without_a_colder_end(searched, tmp_path, call, no_pictures):
    none, warm = (copy_search(searched, tmp_path / name) for name in ("none", "warm"))
    edit(none / "settings.toml", "fresh = 3", "fresh = 0")
    edit(warm / "settings.toml", "cooled = true", "cooled = false")
    for folder in (none, warm):
        (folder / "run.nc").unlink()
    code, out, _ = call("resume", none, "--json")
    assert code == 0
    told, before = json.loads(out), json.loads((searched / "summary.json").read_text())
    assert (told["rows"], told["colder_from"]) == ([], None)
    assert {k: v["values"] for k, v in told["search"]["methods"].items()} == {
        k: v["values"] for k, v in before["search"]["methods"].items()
    }
    assert not (none / "run.nc").exists()
    code, out, _ = call("resume", warm)
    assert code == 0
    assert "colder" not in out
    run, fresh = hb.load(warm / "run.nc"), hb.load(searched / "run.nc")
    assert {k: v.cooled(72) for k, v in run.partition.items()} == fresh.partition
    assert out.splitlines()[-1] == f"results: {warm}"


def test_a_regression_has_its_rmse_in_the_units_of_the_data_and_predicts(tmp_path, call, no_pictures):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2))
    y = 100 + 30 * X @ [1.0, -1.0]
    data = tmp_path / "size.csv"
    np.savetxt(data, np.column_stack([X, y]), delimiter=",", header="a,b,size", comments="")
    options = ["--target", "size", "--hidden", "8", "--steps", "400", "--candidates", "4", "--fresh", "3"]
    method = ["--method", "adam:h=1e-3..0.1"]
    assert call("tune", "--data", data, *options, *method, "--out", tmp_path / "run")[0] == 0
    run = hb.load(tmp_path / "run" / "run.nc")
    inputs = run.problem.X_test[0] * run.problem.scale + run.problem.shift
    targets = run.problem.Y_test[0] * run.problem.target_scale + run.problem.target_shift
    each = np.sqrt(np.mean((run.outputs(inputs) - targets) ** 2, axis=(1, 2)))
    (row,) = json.loads((tmp_path / "run" / "summary.json").read_text())["rows"]
    assert row["single"]["rmse"]["mean"] == pytest.approx(each.mean())
    assert row["averaged"]["rmse"]["mean"] == pytest.approx(
        np.sqrt(np.mean((run.predict(inputs).mean - targets) ** 2))
    )
    assert run.problem.target_scale[0] > 30
    code, out, _ = call("predict", tmp_path / "run", data)
    assert code == 0
    said = [float(line["prediction"]) for line in csv.DictReader(io.StringIO(out))]
    np.testing.assert_allclose(said, run.predict(X).mean[:, 0])


# Ranges


def test_what_is_not_named_has_its_usual_range_and_what_is_named_its_own():
    family, table = make_family("a", {"name": "adam", "h": "1e-3..0.01", "beta1": "0.8"})
    usual = hb.Adam.searched
    assert family.ranges == {"h": hb.between(1e-3, 0.01), "beta2": usual["beta2"]}
    assert family.make({"h": 0.002, "beta2": 0.99}) == hb.Partition(hb.Adam(0.8, 0.99), 0.002)
    assert table["beta2"] == asdict(usual["beta2"])
    assert table["beta2"]["scale"] == "complement"
    near_one, _ = make_family("a", {"name": "adam", "beta1": "0.8..0.9"})
    assert near_one.ranges["beta1"] == hb.between(0.8, 0.9, "complement")
    decay, _ = make_family("a", {"name": "adlala", "weight_decay": "1e-6..1e-3"})
    assert decay.ranges == {**SEARCHED["AdLaLa"], "weight_decay": hb.between(1e-6, 1e-3)}
    values = {name: range.at(0.5) for name, range in decay.ranges.items()}
    assert decay.make(values) == hb.AdLaLa(**values)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name the methods to tune, such as --method adlala"),
        (["--method", "adalala"], "there is no method 'adalala'; accepted: adlala, lol"),
        (["--method", "frozen"], "there is no method 'frozen' to tune; accepted: adlala"),
        (["--method", "adam:tau=1e-4..1e-3"], "method Adam has no tau; accepted: h, beta1, beta2"),
        (["--method", "adam:h=0.1..0.01"], "Adam: h: between: low must be below high, got 0.1 and 0.01"),
        (["--method", "adam:h=0.1..0.1"], "Adam: h: between: low must be below high"),
        (["--method", "adam:h=0..0.1"], "Adam: h: between: low must be > 0 on a logarithmic scale, got 0.0"),
        (["--method", "adam:h=-1..0.1"], "Adam: h: between: low must be > 0"),
        (["--method", "adam:beta1=0.5..1.5"], "Adam: beta1: between: high must be < 1"),
        (["--method", "adam:eps=1e-8..inf"], "Adam: eps: between: high must be finite"),
        (["--method", "adam:h=0.1..x"], "Adam: h: an end of a range must be a number, got 'x'"),
        (["--method", "adam:h=..1"], "Adam: h: an end of a range must be a number, got ''"),
        (["--method", "adlala:word=BA..OAB"], "AdLaLa: word: an end of a range must be a number"),
        (
            ["--method", "adam:h=[0.1,0.2]"],
            "Adam: tune searches ranges such as h=0.01..0.5, so it takes no",
        ),
        (
            ["--method", "lala:h=auto"],
            "LaLa: tune searches ranges such as h=0.01..0.5, so it takes no list",
        ),
        (["--method", "adam:beta1=1.5"], "beta1 must be"),
        (["--method", "adam", "--method", "adam"], "the method Adam occurs twice"),
        (["--method", "adam", "--steps", "7"], "must be a whole number >= 8, got 7"),
        (["--method", "adam", "--validation", "0"], "there are no validation data"),
        (["--method", "adam", "--validation", "1"], "validation must be >= 0 and < 1, got 1.0"),
        (["--method", "adam", "--candidates", "0"], "candidates must be a whole number >= 1"),
        (["--method", "adam", "--chains", "0"], "chains must be a whole number >= 1"),
        (["--method", "adam", "--by", "luck"], "by must be one of 'loss', 'accuracy', got 'luck'"),
        (["--method", "adam", "--fresh", "-1"], "fresh must be a whole number >= 0, got -1"),
        (["--method", "adam", "--fresh", "100000000000"], "GB are free"),
        (["--method", "adam", "--batch", "90"], "batch (of 80 training examples) must be"),
        (["--method", "adam", "--draws", "2"], "it needs one data set, and the problem has 2"),
        (["--method", "adam", "--seed", "-1"], "seed must be a whole number >= 0"),
        (["--method", "lol", "--hidden", ""], "'hidden' selects no layer"),
        (["--method", "adam", "--prior", "1"], "No such option: --prior"),
        (["--method", "adam", "--threads", "0"], "threads must be"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(arguments, told, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = {word for word in arguments if word.startswith("--")}
    usual = [
        word
        for pair in zip(SPIRALS[::2], SPIRALS[1::2], strict=True)
        if pair[0] not in named
        for word in pair
    ]
    assert told in refused("tune", *usual, *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            "[methods.A]\nname = 'adam'\nh = {low = 1}",
            "Adam: h must be a number or a range {low, high, scale}",
        ),
        ("[methods.A]\nname = 'adam'\nh = {low = 1, high = 2, scale = 'x'}", "scale must be one of 'log'"),
        ("[methods.A]\nname = 'adam'\nh = {schedule = 'Linear'}", "Adam: h must be a number or a range"),
        ("[training]\nsteps = 3", "'training' is not a section; accepted: problem, network, search, methods"),
        ("[search]\nsamples = 3", "search has no samples; accepted: steps, batch, candidates"),
        ("[methods.A]\nname = 'adam'\n[search]\ncooled = 3", "cooled must be true or false, got 3"),
        ("[methods.A]\nname = 'adam'\n[search]\nseed = 'x'", "seed must be a whole number"),
    ],
)
def test_mistakes_in_settings_are_one_line(content, told, refused, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text(content)
    assert told in refused("tune", "--settings", file, *SPIRALS, "--out", tmp_path / "run")
    assert list(tmp_path.iterdir()) == [file]


def test_candidates_that_all_diverge_are_one_line_and_what_was_searched_stays(refused, tmp_path):
    options = [*SPIRALS, "--steps", "80", "--candidates", "4", "--method", "sgd:h=1e20..1e30"]
    line = refused("tune", *options, "--out", tmp_path / "run", code=1)
    assert "nothing was found in 80 steps (SGD: every candidate diverged): search at smaller h" in line
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["search", "settings.toml"]


# Interruptions

LONG = [*SPIRALS, "--steps", "2000", "--batch", "10", "--candidates", "16", "--fresh", "3", *METHODS]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return the files of a search that nothing has disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_figures", lambda *arguments: [])
        with pytest.raises(SystemExit):
            main(["tune", *LONG, "--threads", "1", "--out", str(folder)])
    return {name: (folder / name).read_bytes() for name in WHOLE}


def differing_files(folder, expected):
    """Return the names of the files in a folder that are not as expected."""
    return [name for name, content in expected.items() if (folder / name).read_bytes() != content]


def test_a_search_that_is_killed_again_and_again_ends_as_if_nothing_had_happened(
    tmp_path, undisturbed, no_pictures
):
    folder = tmp_path / "run"
    files = ("search/round-1-2.nc", "search/round-2-3.nc", "search/confirmed.nc", "run.nc")
    arguments = ["tune", *LONG, "--threads", "1", "--every", "0.05", "--out", str(folder)]
    for file in files:
        assert killed_after_writing(
            partial(main, arguments), lambda path, last=folder / file: Path(path) == last
        )
        arguments = ["resume", str(folder), "--threads", "1", "--every", "0.05"]
    assert not (folder / "summary.json").exists()
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0
    assert differing_files(folder, undisturbed) == []


def test_ctrl_c_keeps_what_was_done_and_says_how_to_go_on(
    tmp_path, undisturbed, call, no_pictures, monkeypatch
):
    folder, show, stopped = tmp_path / "run", Display.__call__, []

    def interrupt(self, now):
        show(self, now)
        files = {path.stem for path in (folder / "search").iterdir()}
        place = "again" if "confirmed" in files else "second round" if "round-2-1" in files else "first round"
        place = place if now.finding else "fresh"
        if place not in stopped:
            stopped.append(place)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Display, "__call__", interrupt)
    arguments = ["tune", *LONG, "--threads", "1", "--out", folder]
    for place in ("first round", "second round", "again", "fresh"):
        code, out, err = call(*arguments)
        assert (code, out, stopped[-1]) == (130, "", place)
        assert err.splitlines()[-1] == f"heatbath: interrupted; continue with: heatbath resume {folder}"
        assert (folder / "run.nc").exists() == (place == "fresh")
        arguments = ["resume", folder]
    assert not (folder / "summary.json").exists()
    assert call(*arguments)[0] == 0
    assert differing_files(folder, undisturbed) == []


def test_a_finished_search_can_be_resumed_and_stays_as_it_is(searched, tmp_path, call, no_pictures):
    folder = copy_search(searched, tmp_path / "run")

    def contents():  # but for the report, which has pictures in it, and none are made here
        files = (path for path in folder.rglob("*") if path.is_file() and path.name != "report.html")
        return {path: path.read_bytes() for path in files}

    before = contents()
    assert call("resume", folder)[0] == 0
    assert contents() == before


def test_settings_that_were_edited_do_not_go_on_with_the_old_search(searched, refused, tmp_path):
    folder = copy_search(searched, tmp_path / "run")
    edit(folder / "settings.toml", "high = 0.0002", "high = 0.0003")
    assert "is of another run, with other partition" in refused("resume", folder, code=1)
