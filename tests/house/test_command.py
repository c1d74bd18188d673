"""The command `headscope`: its files, its refusals and exit codes, and how it opens the app."""

import inspect
import io
import json
import os
import re
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pandas as pd
import pytest
import segno

import mha_core as mha
from mha_core import __main__ as command
from mha_core import resources
from mha_core.analysis import frames
from mha_core.attention import functional
from mha_core.room.rooms import DATABASE, Rooms
from mha_core.sources import SOURCES
from mha_core.sources.huggingface import model as huggingface

MINI = ("--source", "mini", "--h", "2", "--d-model", "32")


@pytest.fixture
def started(monkeypatch) -> list[list[str]]:
    """The commands that would replace the process: the arguments after the interpreter's name."""
    commands = []
    monkeypatch.setattr(os, "execv", lambda _, words: commands.append(words[1:]) or 0)
    told = resources.OPENED, resources.LINK, resources.LESSON, resources.ATLAS
    for name in (*told, resources.ROOMS, resources.HOSTED):
        monkeypatch.setenv(name, "")  # so that it is as before afterwards
        monkeypatch.delenv(name)
    return commands


@pytest.fixture
def database(tmp_path, monkeypatch) -> str:
    url = f"sqlite:///{tmp_path / 'rooms.sqlite3'}"
    monkeypatch.setenv(DATABASE, url)
    return url


def refused(capsys, *words: str) -> str:
    """The message of argparse for wrong usage, whose exit code is 2."""
    with pytest.raises(SystemExit) as end:
        command.main(words)
    assert end.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


# A trace without the app


@pytest.fixture(scope="module")
def trace():
    return mha.trace("The cat sat.", source="mini", h=2, d_model=32)


def write_trace(path: Path, capsys) -> Path:
    assert command.main(["trace", "The cat sat.", *MINI, "-o", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: 5 tokens, 2 layers, 4 heads\n"
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # nothing is left beside it
    return path


def test_a_table_has_every_weight_with_its_words(trace, tmp_path, capsys):
    table = pd.read_csv(write_trace(tmp_path / "t.csv", capsys))
    assert [*table] == ["layer", "head", "query_position", "query", "key_position", "key", "weights"]
    weights = np.array([layer.weights() for layer in trace.layers])
    np.testing.assert_allclose(table["weights"], weights.ravel(), rtol=1e-6)
    places = table[["layer", "head", "query_position", "key_position"]].to_numpy() - 1
    np.testing.assert_array_equal(places, [*np.ndindex(weights.shape)])
    assert table["query"].tolist() == [label for label in trace.tokens.labels for _ in range(5)] * 4


def test_words_with_commas_and_quotes_come_back_from_a_table(tmp_path):
    path = tmp_path / "t.csv"
    assert command.main(["trace", 'a, "b" =c', "--h", "1", "--d-model", "4", "-o", str(path)]) == 0
    labels = mha.words('a, "b" =c').labels
    assert set(pd.read_csv(path)["key"]) == {f"'{label}" if label == "=" else label for label in labels}


def test_arrays_are_those_of_the_trace(trace, tmp_path, capsys):
    with np.load(write_trace(tmp_path / "t.npz", capsys)) as arrays:
        names = ("queries", "keys", "weights", "q", "k", "v")
        assert set(arrays) == {f"{name}_{number}" for name in names for number in (0, 1)}
        for number, layer in enumerate(trace.layers):
            assert arrays[f"keys_{number}"].tolist() == [*trace.tokens.labels]
            np.testing.assert_array_equal(arrays[f"weights_{number}"], layer.weights())
            np.testing.assert_array_equal(arrays[f"v_{number}"], layer.v)


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_a_long_text_is_written_one_head_at_a_time(ending, tmp_path, monkeypatch):
    """The lines of all heads of 3,800 tokens would take 20 GB."""
    trace, cells = mha.trace("a b c d e f g", h=5, d_model=10), []
    real = mha.LayerTrace.weights

    def counted(self, *args, **named):
        result = real(self, *args, **named)
        cells.append(result.size)
        return result

    monkeypatch.setattr(mha.LayerTrace, "weights", counted)
    monkeypatch.setattr(functional, "CELLS", 14)
    command.WRITERS[f".{ending}"](trace, tmp_path / f"t.{ending}")
    assert max(cells) <= {"csv": 14, "npz": 49}[ending]
    assert sum(cells) == 5 * 49
    monkeypatch.undo()
    if ending == "csv":
        table = pd.read_csv(tmp_path / "t.csv")
        expected = frames.long_table(trace, "weights", layer=0, heads=range(5))
        pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    else:
        with np.load(tmp_path / "t.npz") as arrays:
            np.testing.assert_array_equal(arrays["weights_0"], trace.layers[0].weights())


def test_a_file_whose_name_the_terminal_cannot_write_is_written(tmp_path, monkeypatch):
    name, written = os.fsdecode("é".encode() + b"\xff.csv"), io.BytesIO()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    assert command.main(["trace", "a b", "--h", "1", "--d-model", "4", "-o", name]) == 0
    sys.stdout.flush()
    assert written.getvalue() == b"\\xe9\\udcff.csv: 2 tokens, 1 layer, 1 head\n"
    assert os.listdir(tmp_path) == [name]


LINK = "https://a.b/?text=The+cat+sat.&h=2&d_model=32&layer=1&head=2&token=cat"


@pytest.mark.parametrize("words", [("The cat sat.", *MINI), ("--link", LINK)], ids=["text", "link"])
def test_a_text_or_a_link_becomes_a_trace_and_its_view(words, trace, tmp_path, capsys):
    for name in ("t.safetensors", "t.html"):
        assert command.main(["trace", *words, "-o", str(tmp_path / name)]) == 0
        assert capsys.readouterr() == (f"{tmp_path / name}: 5 tokens, 2 layers, 4 heads\n", "")
    loaded = mha.load(tmp_path / "t.safetensors")
    assert loaded.tokens == trace.tokens
    for ours, theirs in zip(loaded.layers, trace.layers, strict=True):
        np.testing.assert_array_equal(ours.weights(), theirs.weights())
    place = {"layer": 0, "head": 1, "token": "cat"} if LINK in words else {}
    view = trace.view(**place)
    view.header["on"] = None  # a link that names no heads leaves them to the picture
    view.save(tmp_path / "expected.html")
    assert (tmp_path / "t.html").read_bytes() == (tmp_path / "expected.html").read_bytes()


def test_an_invalid_value_of_a_link_is_reported_and_replaced(tmp_path, capsys):
    link = f"{LINK}&seed=x&against=zzz"
    assert command.main(["trace", "--link", link, "-o", str(tmp_path / "t.csv")]) == 0
    first, second = capsys.readouterr().err.splitlines()
    number = "seed is a whole number from 0 to 2,147,483,647"
    assert first == f"headscope: the link has seed=x, but {number}; 0 is used instead"
    assert second.startswith("headscope: the link has against=zzz, but against is untrained, head, ")
    assert second.endswith("; it is left out")
    assert command.main(["trace", "--link", "source=file", "-o", str(tmp_path / "u.csv")]) == 1
    assert (
        "The source 'file' of this scene is only in the app in which it was opened" in capsys.readouterr().err
    )
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]


def test_what_a_link_has_in_vain_is_reported(tmp_path, capsys):
    link = "text=a b&amp;h=8&source=random&head=33&layer=1"
    assert command.main(["trace", "--link", link, "-o", str(tmp_path / "t.csv")]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "headscope: the link has amp;h=8, but no link has a field of this name; it is left out",
        "headscope: the link has head=33; 4 is used instead",
    ]


def test_every_setting_of_a_source_is_an_option(tmp_path):
    functions = (*SOURCES.values(), huggingface.trace, huggingface.follow)
    arguments = {name for function in functions for name in inspect.signature(function).parameters}
    of_python = {"text", "reading", "model", "source", "tokenizer", "text_pair"}
    of_python |= {"attention_mask", "position_ids"}
    assert set(command.SETTINGS) == arguments - of_python - {"edits", "answers"}
    path = tmp_path / "t.safetensors"
    words = "--h 4 --d-model 12 --seed 3 --layers 2 --d-k 6 --d-v 7 --n-kv-heads 2 --no-bias"
    words += " --position rotary --mask causal --device cpu --limit 9"
    assert command.main(["trace", "a b c", *words.split(), "-o", str(path)]) == 0
    [first, second] = mha.load(path).layers
    assert (first.n_heads, first.n_kv_heads, first.d_k, first.d_v, first.d_model) == (4, 2, 6, 7, 12)
    expected = mha.trace(
        *("a b c",), h=4, d_model=12, seed=3, layers=2, d_k=6, d_v=7, n_kv_heads=2, bias=False,
        position="rotary", mask="causal",
    )  # fmt: skip
    np.testing.assert_array_equal(second.weights(), expected.layers[1].weights())


def test_one_kind_of_several_is_written(tmp_path, capsys, monkeypatch):
    inner, outer = (
        mha.from_weights(np.full((1, 2, n), 1 / n), "a b", keys=keys).layers[0]
        for n, keys in ((2, None), (3, "c d e"))
    )
    translated = mha.AttentionTrace(
        inner.sides.queries, (replace(inner, kind="decoder"), outer), {"name": "given"}
    )
    monkeypatch.setattr(mha, "trace", lambda text, **settings: translated)
    for name in ("t.csv", "t.npz"):
        assert command.main(["trace", "c d e", "-o", str(tmp_path / name)]) == 0
    assert len(pd.read_csv(tmp_path / "t.csv")) == 4 + 6
    page = str(tmp_path / "t.html")
    assert command.main(["trace", "c d e", "-o", page]) == 1
    assert "the kinds here are decoder, cross; choose one, as in --kind cross" in capsys.readouterr().err
    assert command.main(["trace", "c d e", "--kind", "cross", "-o", page]) == 0
    assert command.main(["trace", "c d e", "--kind", "encoder", "-o", page]) == 1
    assert "decoder or cross can be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("x", "--h", "5", "--d-model", "12"), "d_model 12 cannot be split into 5 heads"),
        (("word " * 70, *MINI), "The text has 70 tokens; the small models read up to 63"),
        (("x", "--source", "mini", "--seed", "1"), "seed is an argument of source='random', not of"),
        (("",), "There is no text to look at"),
        (("x", "--mask", "round"), "There is no mask called 'round'"),
    ],
)
def test_a_refusal_is_printed_without_a_traceback(words, message, tmp_path, capsys):
    assert command.main(["trace", *words, "-o", str(tmp_path / "t.csv")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"headscope: {message}")
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_traced(tmp_path, capsys, monkeypatch):
    (taken := tmp_path / "t.csv").mkdir()
    assert command.main(["trace", "x", "-o", str(taken)]) == 1
    assert str(taken) in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [taken]
    monkeypatch.setattr(mha, "trace", None)
    assert command.main(["trace", "x", "-o", str(tmp_path / "no" / "t.csv")]) == 1
    assert "There is no folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("trace", "-o", "t.csv"), "one of the arguments TEXT --link is required"),
        (("trace", "x", "--link", "text=x", "-o", "t.csv"), "--link: not allowed with argument TEXT"),
        (("trace", "--link", "a=x", "--d-k", "3", "-o", "t.csv"), "the settings; leave --d-k out"),
        (("trace", "x"), "required: -o/--output"),
        (("trace", "x", "-o", "t.txt"), "'t.txt' must end in .html, .csv, .npz or .safetensors"),
        (("trace", "x", "y", "-o", "t.csv"), "unrecognized arguments: y"),
        (("trace", "x", "-o", "t.csv", "--h", "two"), "invalid int value: 'two'"),
        (("trace", "x", "-o", "t.csv", "--see", "1"), "unrecognized arguments: --see"),
        (("trace", "x", "-o", "t.csv", "--server.port", "1"), "--server.port is an option of the app"),
        (("hello",), "invalid choice: 'hello'"),
        (("--vers",), "unrecognized arguments: --vers"),
        (("open",), "required: FILE"),
        (("--server.port", "8600", "hello"), "invalid choice: 'hello'"),
    ],
)
def test_a_wrong_usage_is_refused(words, message, capsys, started):
    assert message in refused(capsys, *words)
    assert started == []


# The app

RUN = ["-m", "streamlit", "run", str(resources.path("app.py"))]
PORT = ["--server.port", "8600"]
OPEN = ["open", "t.safetensors"]


@pytest.mark.parametrize("options", [[], PORT, ["--server.port=8600", "--theme.base", "dark"], PORT[:1]])
def test_without_a_command_the_app_opens_with_streamlits_options(options, started):
    assert command.main(options) == 0
    assert started == [[*RUN, *options]]
    assert resources.OPENED not in os.environ


@pytest.mark.parametrize(
    ("words", "options"), [(OPEN, []), ([*OPEN, *PORT], PORT), ([*PORT, *OPEN], PORT)], ids=str
)
def test_a_saved_trace_is_opened_in_the_app(trace, words, options, started, tmp_path, monkeypatch):
    trace.save(tmp_path / "t.safetensors")
    monkeypatch.chdir(tmp_path)
    assert command.main(words) == 0
    assert started == [[*RUN, *options]]
    assert os.environ[resources.OPENED] == str(tmp_path / "t.safetensors")


@pytest.mark.parametrize(
    ("word", "address"),
    [
        ("text=How are you?&h=8", "/?text=How+are+you%3F&h=8"),
        ("https://a.b:1/base/what-if?edits=off,layer=1#sides", "/what-if?edits=off%2Clayer%3D1#sides"),
        ("http://localhost:8501/steps", "/steps?"),
        ("http://[::1/x?h=8", "/x?h=8"),
        ("?h=8", "/?h=8"),
        ("/a/hops?h=8", "/hops?h=8"),
        ("http://a.b/é\\x?text=動", "/%C3%A9%5Cx?text=%E5%8B%95"),
    ],
)
def test_a_link_is_opened_in_the_app(word, address, started):
    assert command.main(["open", word]) == 0
    assert started == [RUN]
    assert os.environ[resources.LINK] == address
    assert resources.OPENED not in os.environ


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("open", "nowhere"), "There is no file"),
        (("open", "t.safetensors"), "cannot be read"),
        (("open", "."), "it has no atlas.json"),
        (
            ("lesson", "nowhere.toml"),
            "There is no file nowhere.toml; the lessons of Headscope are called heads, ",
        ),
        (("lesson", "check", "nowhere.toml"), "There is no file nowhere.toml; the lessons of Headscope"),
        (("lesson", "nowhere"), "There is no lesson called 'nowhere'; heads, query-key-value, "),
        (("lesson", "."), "headscope: .: Is a directory"),
        (("lesson", "mine.toml"), "1 to 24 screens"),
        (("class", "nope"), "There is no lesson called 'nope'; heads, query-key-value, "),
        (("class", "nope.toml"), "There is no file nope.toml; the lessons of Headscope"),
        (("class", "mine.toml"), "A lesson has 1 to 24 screens"),
    ],
    ids=" ".join,
)
def test_another_file_is_refused_before_the_app_starts(
    words, message, started, database, tmp_path, monkeypatch, capsys
):
    (tmp_path / "t.safetensors").write_bytes(b"no trace")
    (tmp_path / "mine.toml").write_text("minutes = 3")
    monkeypatch.chdir(tmp_path)
    assert command.main(words) == 1
    assert message in capsys.readouterr().err
    assert started == []
    assert not (tmp_path / "rooms.sqlite3").exists()


# As a program


@pytest.mark.slow
def test_the_exit_code_and_the_streams_of_the_program(tmp_path):
    words = ("trace", "x", "--h", "3", "--d-model", "4", "-o", str(tmp_path / "t.csv"))
    run = [sys.executable, "-m", "mha_core", *words]
    impossible = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert (impossible.returncode, impossible.stdout) == (1, "")
    assert impossible.stderr.startswith("headscope: d_model 4 cannot be split into 3 heads")
    assert "Traceback" not in impossible.stderr


def test_help_and_version_do_not_load_torch():
    code = """
import sys
from mha_core.__main__ import main
try:
    main(["--version"])
except SystemExit as end:
    assert end.code == 0
print([name for name in ("torch", "numpy", "pandas", "plotly", "streamlit") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"headscope {mha.__version__}", "[]"]


# Lessons

SCENE = "text=How are you?&source=random&h=2&layer=1&token={word}"
LESSON = f'minutes = 3\n[[screens]]\nkind = "point"\nscene = "{SCENE}"\n'


def lesson_file(folder: Path, text: str) -> str:
    path = folder / "greeting.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_an_atlas_is_made_with_its_progress_and_opened(tmp_path, capsys, started):
    folder = tmp_path / "small atlas"
    words = ("atlas", "small", "-o", str(folder), "--count", "5", *MINI)
    assert command.main(words) == 0
    said = capsys.readouterr()
    assert "0 of 1 shards of 5 texts are done" in said.err
    assert "1 of 1 shards of 5 texts are done; about 0 s left" in said.err
    assert said.out.splitlines()[0] == f"{folder}: 5 texts, 4 heads"
    assert said.out.splitlines()[-1] == f"Look at it with: headscope open '{folder}'"
    assert mha.Atlas(folder).manifest["settings"] == {"h": 2, "d_model": 32}

    assert command.main(["open", str(folder)]) == 0
    assert os.environ[resources.ATLAS] == str(folder)
    assert os.environ[resources.LINK] == "/atlas?atlas=small+atlas"
    assert len(started) == 1


def test_an_atlas_says_which_texts_are_left_out_and_why(tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("A cat sat.\n" + "word " * 70 + "\nA dog ran.\n")
    assert command.main(["atlas", str(tmp_path / "texts.txt"), "-o", str(tmp_path / "a"), *MINI]) == 0
    said = capsys.readouterr().out
    assert "3 texts, 1 of them left out, 4 heads" in said
    assert "1 left out: The text has 70 tokens" in said


def test_a_stopped_atlas_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(mha, "atlas", stop, raising=False)
    assert command.main(["atlas", "small", "-o", str(tmp_path / "a")]) == 130
    assert "the same command goes on from here" in capsys.readouterr().err


def test_a_lesson_opens_in_the_app(tmp_path, started):
    path = lesson_file(tmp_path, LESSON.format(word="How"))
    assert command.main(["lesson", path]) == 0
    assert len(started) == 1
    assert os.environ[resources.LESSON] == path
    assert os.environ[resources.LINK] == "/lessons?lesson=greeting"


def test_a_lesson_of_headscope_opens_by_its_number_and_is_checked_by_its_name(started, capsys):
    assert command.main(["lesson", "1"]) == 0
    assert (len(started), resources.LESSON in os.environ) == (1, False)
    assert os.environ[resources.LINK] == "/lessons?lesson=heads"
    assert command.main(["lesson", "check", "heads"]) == 0
    assert "screen 1 (en), point: truck (margin " in capsys.readouterr().out


def test_a_checked_lesson_says_how_clear_each_question_is(tmp_path, capsys):
    path = lesson_file(tmp_path, LESSON.format(word="How") + f'\nask = "{"word " * 57}"')
    assert command.main(["lesson", "check", path]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{path}:2: screen 1 (en), point: are (margin 0.")
    assert "the question has 57 words" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LESSON.format(word="they"), "screen 1 (en), point: The scene looks at the word 'they'"),
        (LESSON + "ask = 3", ":5: ask is a text"),
        ("x = = 1", ":1: This is not TOML"),
    ],
)
def test_what_is_wrong_in_a_lesson_is_printed_and_the_exit_code_is_1(tmp_path, capsys, text, said):
    assert command.main(["lesson", "check", lesson_file(tmp_path, text)]) == 1
    assert said in capsys.readouterr().out


def test_a_lesson_is_one_file(capsys):
    assert "headscope lesson check FILE" in refused(capsys, "lesson", "one.toml", "two.toml")


# A room


@pytest.fixture
def room(database, capsys):
    """`room("class")`: what the command prints, and the room and the desk that its two links open."""
    rooms = Rooms(database)

    def opened(*words: str):
        assert command.main(words) == 0
        said = capsys.readouterr().out
        students, desk = (urlsplit(link) for link in re.findall(r"http://\S+", said))
        [code] = re.findall(r"^Room (\w+): ", said, re.MULTILINE)
        [invitation], [desk_code] = parse_qs(students.query)["room"], parse_qs(desk.query)["desk"]
        assert rooms.is_invited(invitation)
        assert (desk_code, students.fragment) == (code, "")
        return said, students, rooms.desk(code, desk.fragment).room()

    yield opened
    rooms.close()


def test_a_class_gets_a_room_of_the_first_lesson_and_links_that_open_it(room, started):
    said, students, opened = room("class")
    assert said.startswith(f"Room {opened.code}: What is a head?\n")
    assert opened.lesson.name == "heads"
    assert students.path == "/lessons"
    ip_address(students.hostname)  # by which others on the network find it
    segno.make_qr(students.geturl()).terminal(drawn := io.StringIO(), compact=True)
    assert said.endswith(drawn.getvalue())
    assert started == [[*RUN, "--server.address=0.0.0.0", f"--server.port={students.port}"]]
    assert os.environ[resources.ROOMS] == resources.THIS_MACHINE
    assert os.environ[resources.HOSTED] == "1"


def test_a_class_gets_a_lesson_by_its_name_or_a_teachers_own(room, started, tmp_path):
    assert room("class", "one-number")[2].lesson.name == "one-number"
    said, _, opened = room("class", lesson_file(tmp_path, LESSON.format(word="How")))
    assert (opened.lesson.name, opened.lesson.minutes) == ("greeting", 3)
    assert said.startswith(f"Room {opened.code}: greeting\n")


@pytest.mark.usefixtures("started")
def test_an_hour_has_several_lessons_and_the_rooms_of_before_are_named(
    room, database, started, tmp_path, capsys
):
    own = lesson_file(tmp_path, LESSON.format(word="How"))
    said, _, opened = room("class", "4", own, "heads")
    assert [one.name for one in opened.lessons] == ["several-heads", "greeting", "heads"]
    assert said.startswith(f"Room {opened.code}: Why several heads?, greeting, What is a head?\n")
    with closing(Rooms(database)) as rooms:
        rooms.join(opened.code, "Ada")
    assert command.main(["class"]) == 0
    assert f"Room {opened.code} goes on with 1 student, until " in capsys.readouterr().out
    assert command.main(["class", "99"]) == 1
    assert "There is no lesson called '99'; 1, 2, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("origin", "what"),
    [
        (None, "headscope[room]"),
        ({"url": "file:///tmp/h-1.whl", "archive_info": {}}, "headscope[room] @ file:///tmp/h-1.whl"),
        (
            {"url": "https://g.it/h", "vcs_info": {"vcs": "git", "commit_id": "a1"}},
            "headscope[room] @ git+https://g.it/h@a1",
        ),
    ],
)
def test_an_extra_is_installed_from_where_the_library_came(origin, what, monkeypatch, tmp_path):
    assert resources.install("room").endswith(f'-e "{resources.PACKAGE.parent}[room]"')
    monkeypatch.setattr(resources, "PACKAGE", tmp_path / "mha_core")
    note = tmp_path / "headscope-0.1.0.dist-info" / "direct_url.json"
    note.parent.mkdir()
    if origin:
        note.write_text(json.dumps(origin))
    assert resources.install("room") == f'{sys.executable} -m pip install "{what}"'


def test_the_links_of_a_room_are_those_of_streamlits_options(room, started):
    options = ["--server.port", "8700", "--server.baseUrlPath=/a/b/"]
    options += ["--browser.serverAddress", "school.example"]
    _, students, _ = room("class", *options, "--server.address", "10.0.0.1")
    assert (students.netloc, students.path) == ("school.example:8700", "/a/b/lessons")
    assert started == [[*RUN, *options, "--server.address", "10.0.0.1"]]


def test_a_room_has_a_port_that_is_free(room, started):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", 8501))
        except OSError:
            pass  # somebody has it already
        else:
            other.listen()
        assert room("class")[1].port > 8501


def test_a_class_whose_database_does_not_answer_is_told(started, monkeypatch, capsys):
    monkeypatch.setenv(DATABASE, "sqlite:////nowhere/rooms.sqlite3")
    assert command.main(["class"]) == 1
    assert "The database of the rooms does not answer now (SQLITE_CANTOPEN)." in capsys.readouterr().err
    assert started == []
