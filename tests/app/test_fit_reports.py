"""What the command line writes of a fit, of scores and of a run's latents, Python writes too."""

import numpy as np
import pytest

import siloweave as sw
from siloweave.errors import InputError, RosterError
from tests.protocols.test_columns_split import Echo
from tests.synthesizers.cases import SCHEMA, fit, pandas_frame, parties_of
from tests.synthesizers.test_columns import fitted_once, made, split

FRAME = pandas_frame()


def fits():
    """A fit of every kind, and the rows that it was fitted to."""
    rows = parties_of("flaim", FRAME)
    return {
        "graphical": (fit("flaim", rows), rows),
        "network": (sw.GaussianCopula().fit(FRAME, SCHEMA), FRAME),
        "columns": (Echo().fit(split(FRAME), SCHEMA), split(FRAME)),
        "columns apart": (Echo(shared=False).fit(split(FRAME), SCHEMA), split(FRAME)),
    }


@pytest.fixture(scope="module", params=["graphical", "network", "columns", "columns apart"])
def pair(request):
    return fits()[request.param]


def test_every_fit_writes_its_public_report(pair, tmp_path):
    fitted, _ = pair
    path = sw.write_report(fitted, str(tmp_path / "report.html"), title="a <study>")
    page = path.read_text("utf-8")
    assert "a &lt;study&gt;" in page
    assert fitted.info.title in page
    assert "real rows" not in page.split("<body")[0]


def test_the_owners_report_takes_the_rows_and_only_the_owner_reads_it(pair, tmp_path):
    fitted, rows = pair
    public = sw.write_report(fitted, tmp_path / "public.html").read_text("utf-8")
    path = sw.write_report(fitted, tmp_path / "owner.html", audience="owner", data=rows)
    assert len(path.read_text("utf-8")) > len(public)
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_written_is_refused_before_any_work(tmp_path):
    fitted = sw.GaussianCopula().fit(FRAME, SCHEMA)
    for path, named, words in (
        ("report.txt", {}, r"ends in \.html"),
        ("gone/report.html", {}, "its folder does not exist"),
        ("report.html", {"audience": "owner"}, "give data="),
        ("report.html", {"data": FRAME}, 'give audience="owner"'),
        ("report.html", {"risks": FRAME}, 'give audience="owner"'),
        ("report.html", {"audience": "all"}, 'must be "public" or "owner"'),
    ):
        with pytest.raises(InputError, match=words):
            sw.write_report(fitted, tmp_path / path, **named)
    assert not list(tmp_path.iterdir())


def test_scores_and_risks_are_a_page(tmp_path):
    rows = sw.Table.from_columns({"x": (np.arange(60.0) / 2, None)})
    risks = sw.attack(rows, rows, control=rows, allow_overlap=True, attacks=["closest_records"],
                      targets=10)  # fmt: skip
    path = sw.write_page(str(tmp_path / "page.html"), risks=risks)
    assert "closest" in path.read_text("utf-8")
    with pytest.raises(InputError, match="nothing to show"):
        sw.write_page(tmp_path / "none.html")
    with pytest.raises(InputError, match=r"ends in \.html"):
        sw.write_page("page.txt", risks=risks)


def test_latents_of_a_run_are_inverted_by_a_public_name(tmp_path):
    fitted = made("silofuse").fit(split(FRAME), SCHEMA, folder=tmp_path)
    fitted.save(tmp_path / "model")
    backwards = dict(reversed(split(FRAME).items()))
    found = sw.invert_run(tmp_path, backwards, known=10, pairs=50)
    assert [one.party for one in found] == list(fitted.columns)
    assert sw.invert_run(tmp_path, list(split(FRAME).values()), known=10, pairs=50) == found
    with pytest.raises(RosterError, match="the run's parties are north, south, west"):
        sw.invert_run(tmp_path, {"north": FRAME})
    with pytest.raises(InputError, match="there is invert_run"):
        sw.attack_run(tmp_path, split(FRAME), FRAME)
    assert fitted_once("silofuse").info == fitted.info


def test_a_run_without_latents_is_sent_to_the_other_attack(tmp_path):
    fitted = fit("aim", folder=tmp_path)
    fitted.save(tmp_path / "model")
    with pytest.raises(InputError, match="there is attack_run"):
        sw.invert_run(tmp_path, FRAME)
