"""Pages without a server: what is in their files, what they refuse, and the command that writes them."""

import json
import re

import pytest

import mha_core as mha
from mha_core import __main__ as command
from mha_core.static import parts, site
from mha_core.training import checkpoints

MAX_PAGE, MAX_FILE = 2_000_000, 25_000_000  # bytes


def names_in(page: str) -> list[str]:
    return re.findall(r'<script type="text/plain" id="([\w-]+)">', page)


def test_one_file_has_a_model_and_the_words_of_each_language(tmp_path, capsys):
    file = tmp_path / "page.html"
    assert command.main(["static", str(file)]) == 0
    assert names_in(file.read_text("utf-8")) == [
        *("program", "texts", "words-en", "words-zh", "glass-box-en-h4-d64", "glass-box-zh-h4-d64"),
    ]
    assert file.stat().st_size <= MAX_PAGE
    assert "open it in a browser" in capsys.readouterr().out


def test_a_folder_has_every_model_under_a_name_that_changes_with_it(tmp_path, monkeypatch, refused):
    folder = tmp_path / "site"
    monkeypatch.setattr(
        checkpoints, "PLANS", checkpoints.PLANS[:2] + checkpoints.PLANS[-1:]
    )  # all take seconds
    assert command.main(["static", str(folder)]) == 0
    page = (folder / "index.html").read_text("utf-8")
    listed = json.loads(re.search(r'id="files">([^<]*)<', page)[1])
    assert {*listed} == {*map(checkpoints.name, checkpoints.PLANS), "words-en", "words-zh"}
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*.js")]
    assert sorted(files) == sorted(listed.values())
    assert max(path.stat().st_size for path in folder.rglob("*.*")) <= MAX_FILE
    monkeypatch.setattr(parts, "words", lambda language: language.encode())
    site.save_folder(folder)  # again: what has changed replaces its older file
    assert len([*folder.rglob("*.js")]) == len(files)
    assert not (folder / listed["words-en"]).exists()
    (folder / "thesis.docx").touch()
    assert "thesis.docx" in str(refused(site.save_folder, folder))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text("mine", encoding="utf-8")
    assert "index.html" in str(refused(site.save_folder, tmp_path / "other"))


def test_a_view_is_saved_with_its_model_and_opens_where_it_looks(tmp_path, refused):
    trace = mha.trace("小猫坐在垫子上。", source="mini", h=2, d_model=128)
    trace.view(head=1, token="小猫").save(tmp_path / "view.html", model=True)
    inside = names_in((tmp_path / "view.html").read_text("utf-8"))
    assert "link" in inside
    assert [name for name in inside if "-d" in name] == [
        *("glass-box-zh-h2-d128", "glass-box-en-h4-d64", "glass-box-zh-h4-d64"),
    ]
    drawn = mha.trace("a cat", h=2, d_model=8)
    said = refused(drawn.view().save, tmp_path / "random.html", model=True)
    assert "this is of the source random" in str(said)


@pytest.mark.parametrize("arguments", [["site", "--link", "text=a"], ["no folder/page.html"]])
def test_a_wrong_command_is_refused(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.main(["static", *arguments]) == 1
    assert capsys.readouterr().err.startswith("headscope: ")
