"""The pieces of the report: tables, counts of verdicts and small pictures."""

import numpy as np
from PIL import Image

from heatbath.paper import report
from heatbath.paper.claims import FAILS, HOLDS, IN_PART


def summary_of(*verdicts):
    """Return the summary of an experiment whose claims have these verdicts."""
    claims = [
        {"claim": f"a < {i}", "paper": "", "ours": "1 | 2", "verdict": v} for i, v in enumerate(verdicts)
    ]
    return {"name": "points", "claims": claims}


def test_verdicts_are_counted_over_all_experiments():
    text = report.verdict_counts([summary_of(HOLDS, FAILS), summary_of(HOLDS, IN_PART)])
    assert text == "2 hold, 1 hold in part or are not decided, 1 do not hold"


def test_a_claim_is_escaped_in_html_and_links_to_its_experiment_in_markdown():
    (row,) = report._claim_rows([summary_of(HOLDS)])
    assert report._claim_cells(row) == ["a &lt; 0", "", "1 | 2"]
    assert report._markdown_claim(row)[0] == "[points](#points)"
    assert report._markdown_claim(row)[-1] == f"{report.MARKS[HOLDS]} {HOLDS}"


def test_a_bar_in_a_cell_does_not_end_it_in_markdown():
    assert report._markdown_table(("a", "b"), [("1 | 2", "3")]) == [
        "| a | b |",
        "| --- | --- |",
        "| 1 \\| 2 | 3 |",
    ]


def test_a_table_of_claims_shows_each_verdict_with_its_mark():
    page = report._html_claims(("claim", "verdict"), [("x", FAILS)])
    assert f'<td class="verdict not">{report.MARKS[FAILS]} {FAILS}</td>' in page
    assert page.startswith("<table><thead><tr><th>claim</th><th>verdict</th></tr></thead>")


def test_a_small_picture_keeps_its_proportions(tmp_path):
    Image.fromarray(np.zeros((100, 400, 3), np.uint8)).save(tmp_path / "large.png")
    (tmp_path / "small.png").write_bytes(report.shrink_picture(tmp_path / "large.png", width=40))
    with Image.open(tmp_path / "small.png") as small:
        assert small.size == (40, 10)
