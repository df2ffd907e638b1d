"""Targets in columns of a table, and what is wrong with them."""

from heatbath.datasets import from_table
from tests.datasets.tables.written import HEAD, write_table


def test_numbers_mixed_with_text_are_classes_when_the_user_says_so(tmp_path):
    path = write_table(tmp_path / "mixed.csv", HEAD, "1,2,1", "2,2,2", "3,2,2a")
    assert from_table(path, "y", task="classes").targets == ("1", "2", "2a")


def test_targets_with_a_unit_are_numbers(tmp_path):
    rows = [f"{i % 7},{i + 0.5} EUR" for i in range(40)]
    problem = from_table(write_table(tmp_path / "t.csv", "x,y", *rows), "y", test_share=0, standardise=False)
    assert problem.Y_train[0, :, 0].tolist() == [i + 0.5 for i in range(40)]


def test_a_question_mark_in_a_text_target_is_no_class(tmp_path):
    rows = [f"{i}.5,{['yes', 'no', '?', 'none'][i % 4]}" for i in range(40)]
    problem = from_table(write_table(tmp_path / "t.csv", "a,y", *rows), "y")
    assert problem.targets == ("no", "none", "yes")
    assert any("10 rows without 'y' are left out" in note for note in problem.encoder.notes())


def test_classes_that_differ_in_capitals_only_are_warned_of(tmp_path):
    word = "warning: 'Yes' and 'yes' are taken for different classes of 'y': write them alike if they are one"
    for names, warned in ((("Yes", "no", "yes", "maybe"), True), (("Yes", "no"), False)):
        rows = [f"{i}.5,{names[i % len(names)]}" for i in range(40)]
        notes = from_table(write_table(tmp_path / "t.csv", "a,y", *rows), "y").encoder.notes()
        assert (word in notes) is warned
