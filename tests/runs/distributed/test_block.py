"""Blocks: their descriptions, and the plans that a process keeps."""

import json

import pytest

import heatbath as hb
from heatbath.runs.distributed import block
from heatbath.runs.distributed.block import About, CachedPlan, SharedPlan, cache_plan, cached_plans
from heatbath.runs.plan import make_plan
from heatbath.runs.simulation import Loss
from tests.runs.distributed import GRID, NETWORK, own_data

ABOUT = About(
    digest="d", first=3, stop=8, begin=10, end=30, losses=[Loss(4, 17, "hidden")], machine={"numpy": "2"},
    host="here", seconds=1.5, compiled=0.0, loss=0.25, accuracy=0.5, temperature={"hidden": 1e-4},
)  # fmt: skip


def test_the_description_of_a_block_comes_back_from_text():
    restored = About.read(json.dumps(ABOUT))
    assert restored == ABOUT
    assert restored.losses[0].part == "hidden"


def test_a_block_is_named_and_measured_by_its_chains_and_steps():
    assert ABOUT.name == "chains-3-8-steps-10-30.nc"
    assert ABOUT.chains == range(3, 8)
    assert ABOUT.work == 5 * 20


@pytest.fixture
def empty_cache(monkeypatch):
    monkeypatch.setattr(block, "cached_plans", type(cached_plans)())
    return block.cached_plans


def test_a_process_keeps_the_latest_plans_only(problem, empty_cache):
    plan = make_plan(problem, NETWORK, GRID, steps=20, chains=2)
    for digest in "abac":
        cache_plan(digest, CachedPlan(plan, []))
    assert list(empty_cache) == ["b", "c"]  # to keep a plan a second time does not make it younger


def test_plans_share_the_piece_with_the_user_s_data_and_nothing_else(empty_cache):
    data = own_data()
    short, long = (SharedPlan.of_plan(make_plan(data, NETWORK, hb.LOL(), steps=steps)) for steps in (10, 20))
    assert short.digest != long.digest
    (short_settings, short_data), (long_settings, long_data) = short.content, long.content
    assert short_data == long_data
    assert short_settings != long_settings
    assert [cached.data for cached in empty_cache.values()] == [[short_data]] * 2


def test_the_shared_form_of_a_plan_has_the_name_it_is_given(problem, empty_cache):
    plan = make_plan(problem, NETWORK, GRID, steps=20, chains=2)
    assert SharedPlan.of_plan(plan, "folder").digest == "folder"
    assert SharedPlan.of_plan(plan).modules == ()  # all methods are heatbath's own
    assert len(SharedPlan.of_plan(plan).content) == 1  # a recipe needs no data
