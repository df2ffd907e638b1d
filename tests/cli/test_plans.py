"""Plans made from settings, and settings completed with all defaults."""

import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

import heatbath as hb
from heatbath.cli.plans import prepare_run
from heatbath.cli.settings import merge_settings, read_settings, write_settings
from tests.cli.arguments import ADLALA, SMALL


def test_options_change_what_suits_the_data():
    given = {"name": "spirals", "n_train": 200, "n_test": 50}

    def planned(training, **sections):
        return prepare_run(
            "train", merge_settings({}, {"problem": given, "training": training, **sections}, [])
        )

    search, complete = planned({"steps": 300, "seed": 7})
    assert (search.first_steps, search.budget, complete["training"]["thin"]) == (300, None, 6)
    assert complete["network"]["hidden"] == [50]
    search, complete = planned({"budget": 4000, "batch": 20}, posterior={"prior": 0.3})
    assert (search.budget, search.batch, complete["method"]["gamma"]) == (4000, 20, 1.0)
    assert complete["posterior"]["prior"] == 0.3
    assert planned({"batch": "all"})[1] == planned({})[1]
    _, same = prepare_run("train", merge_settings(complete, {}, []))
    assert same == complete


def test_a_posterior_of_classes_is_for_all_methods_of_a_comparison_and_points_of_a_sweep():
    options = {"problem": {"name": "spirals"}, "posterior": {"prior": "fan_in", "temperature": 0.5}}
    posterior = hb.Posterior("fan_in", temperature=0.5)
    plan, _ = prepare_run(
        "compare", merge_settings({}, options, ["langevin:h=0.1,gamma=1", "adlala", "adam:h=0.01"])
    )
    assert plan.partition == {
        "Langevin": hb.Partition(hb.Langevin(1.0), 0.1, posterior),
        "AdLaLa": hb.AdLaLa(posterior=posterior),
        "Adam": hb.Partition(hb.Adam(), 0.01, posterior),
    }
    method = {"method": {"name": "sgld", "h": "0.1,0.2"}}
    plan, complete = prepare_run("sweep", merge_settings({}, options | method, []))
    assert plan.partition == hb.Partition(hb.SGLD(), [0.1, 0.2], posterior)
    again = tomllib.loads(write_settings("sweep", complete))
    assert prepare_run("sweep", merge_settings(again, {}, []))[0].partition == plan.partition


def test_defaults_of_a_length_that_is_found_are_in_the_settings(sampled):
    problem = {"data": str(sampled / "size.csv"), "target": "size"}
    method = {"name": "lala", "h": "0.1", "gamma": "1"}
    given = {"problem": problem, "method": method, "posterior": {"prior": 1.0}}
    search, complete = prepare_run("train", merge_settings({}, given | {"training": {"steps": "auto"}}, []))
    assert (search.budget, complete["training"]["budget"]) == (20_000, 20_000)
    assert complete["training"]["samples"] == 100
    _, same = prepare_run("train", merge_settings(complete, {}, []))
    assert same == complete
    plan, fixed = prepare_run("train", merge_settings(complete, {"training": {"steps": 500}}, []))
    assert plan.steps == 500
    assert "budget" not in fixed["training"]  # it was of the steps in the file


def test_student_s_law_is_that_of_the_library(sampled):
    given = {"problem": {"data": str(sampled / "size.csv"), "target": "size"}}
    method = {"name": "lala", "h": "0.1", "gamma": "1"}
    told = {"method": method, "posterior": {"degrees": 4.0, "temperature": 0.5}}
    plan, complete = prepare_run("train", merge_settings({}, given | told, []))
    assert plan.partition.posterior == hb.Posterior(temperature=0.5, degrees=4.0)
    assert complete["posterior"]["degrees"] == 4.0
    assert prepare_run("train", merge_settings(complete, {}, []))[0].partition == plan.partition


def test_chains_start_where_those_of_another_run_have_ended(trained, refused, tmp_path):
    folder = Path(shutil.copytree(trained, tmp_path / "first"))
    sections = {"problem": {"name": "spirals", "n_train": 100, "n_test": 60}, "network": {"hidden": [8]}}
    training = {"steps": 10, "batch": 10, "chains": 3, "start": str(folder), "momenta": "thermal"}
    given = merge_settings({**sections, "method": {"name": "lol", "h": 0.1}, "training": training}, {}, [])
    plan, complete = prepare_run("train", given)
    assert np.array_equal(plan.start, hb.load(trained / "run.nc").theta)
    written = tmp_path / "settings.toml"
    written.write_text(write_settings("train", complete))
    again = merge_settings(read_settings(written)[1], {}, [])
    assert np.array_equal(prepare_run("train", again)[0].start, plan.start)
    with pytest.raises(ValueError, match=r"only heatbath train finds .* takes a start"):
        prepare_run("compare", given | {"methods": {"LOL": {"name": "lol", "h": 0.1}}})
    assert "cannot be read" in refused("train", *SMALL, *ADLALA, "--start", tmp_path, "--out", tmp_path / "x")
    hb.load(folder / "run.nc").resume(1).save(folder / "run.nc")
    with pytest.raises(ValueError, match="has changed since these settings were written: use --start"):
        prepare_run("train", again)
