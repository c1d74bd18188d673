"""The command `headscope`: opens the app, a trace, a link or a room; writes traces; checks a module."""

import argparse
import ast
import io
import json
import math
import os
import shlex
import socket
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from zipfile import ZIP_DEFLATED, ZipFile

import mha_core as mha
from mha_core import resources
from mha_core.errors import count_of, listed, one_of

if TYPE_CHECKING:
    from mha_core import AttentionTrace, HeadView
    from mha_core.atlases.run import Progress
    from mha_core.lessons.item import Item
    from mha_core.lessons.lesson import Lesson

# Each setting of a source: its type, and its help text in `headscope trace --help`.
SETTINGS = {
    "h": (int, "heads in each layer (random, mini)"),
    "d_model": (int, "model width: numbers for each token (random, mini)"),
    "seed": (int, "seed of the model weights (random)"),
    "layers": (int, "number of layers (random)"),
    "d_k": (int, "numbers in each query and key (random)"),
    "d_v": (int, "numbers in each value (random)"),
    "n_kv_heads": (int, "key/value heads that the h heads share (random)"),
    "position": (str, "position encoding: none, sinusoidal, learned, rotary or alibi (random)"),
    "mask": (str, "full, causal, or another mask of mha_core.attention.masks (random)"),
    "bias": (bool, "whether each projection adds a bias vector (random)"),
    "architecture": (
        str,
        "glass-box, standard, one-layer, grouped-query, multi-query, latent, decoder, decoder-grouped-query, "
        "decoder-multi-query or decoder-latent (mini)",
    ),
    "trained": (bool, "trained weights, or those before the training (mini)"),
    "revision": (str, "branch, tag or commit on the hub (a model)"),
    "target": (str, "target text of a model with a decoder (a model)"),
    "dtype": (str, "float32, float16 or bfloat16 (a model)"),
    "device": (str, "cpu, cuda or mps"),
    "limit": (int, "maximum number of tokens"),
    "max_bytes": (int, "maximum bytes of memory (random)"),
    "max_flops": (int, "maximum number of operations (random)"),
}
FIRST_PORT = 8501  # as Streamlit
MOST_REASONS = 5  # for texts left out of an atlas
EPILOG = """\
Without a command the app opens in the browser. Streamlit's options are passed on:
  headscope --server.port 8600
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. The exit code is 0, 1 if a request is refused, 2 for wrong usage.

    The app replaces this process: its exit code is Streamlit's.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names that the terminal cannot print
    words, options = _split(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    args = parser.parse_args(words)
    without_app = {"trace": _trace, "atlas": _atlas, "check": _check_module, "static": _static}
    if args.command in without_app and options:
        parser.error(f"{options[0]} is an option of the app, which headscope {args.command} does not open")
    if args.command == "trace" and args.link is not None:
        named = [name for name in ("source", "kind", *SETTINGS) if getattr(args, name, None) is not None]
        if named:
            parser.error(f"--link contains the settings; leave --{named[0].replace('_', '-')} out")
    try:
        if args.command in without_app:
            return without_app[args.command](args)
        if args.command == "open":
            _open(args.opened)
        if args.command == "lesson":
            if args.words[0] == "check" and len(args.words) == 2:
                return _check_lesson(args.words[1])
            if len(args.words) != 1:
                parser.error("a lesson is one file: headscope lesson FILE, or headscope lesson check FILE")
            _open_lesson(args.words[0])
        if args.command == "class":
            options = _open_room(args.lessons, options, own_limits=args.own_limits)
        return _app(options)
    except (mha.MhaError, OSError) as error:
        place, reason = getattr(error, "filename", None), getattr(error, "strerror", None)
        print(f"headscope: {f'{place}: {reason}' if place and reason else error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if args.command == "atlas":
            print("headscope: stopped; the same command goes on from here.", file=sys.stderr)
        return 130


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our arguments, and Streamlit's options with their values: names with a dot, --server.port 8600."""
    words: list[str] = []
    options: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if word == "--":  # everything after it is text
            return [*words, word, *rest], options
        name, equals, _ = word.partition("=")
        if not name.startswith("--") or "." not in name:
            words.append(word)
        else:
            options.extend([word] if equals else [word, *[value for value in [next(rest, None)] if value]])
    return words, options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "headscope",
        description="Multi-head attention with every number of every head in sight.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"headscope {mha.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, meaning: str, more: str = "") -> argparse.ArgumentParser:
        return commands.add_parser(name, help=meaning, description=f"{meaning}.{more}", allow_abbrev=False)

    trace = command("trace", "run attention on a text and write the result to a file")
    asked = trace.add_mutually_exclusive_group(required=True)
    asked.add_argument("text", metavar="TEXT", nargs="?", help="the text, in quotation marks")
    asked.add_argument("--link", help="a link of the app, in quotation marks: its text and settings")
    trace.add_argument(
        *("-o", "--output"),
        type=_output,
        required=True,
        metavar="FILE",
        help=".html: the head view as a page that works offline; .csv: one line for each weight; .npz: "
        "weights, q, k and v of each layer for numpy; .safetensors: a trace for mha.load and headscope open",
    )
    trace.add_argument("--kind", help="only the layers of this kind: encoder, decoder or cross")
    _add_settings(trace, "random")

    atlas = command("atlas", "measure what every head of a model does over many texts")
    atlas.add_argument(
        "texts",
        metavar="TEXTS",
        help="a text file with a text on each line, JSON lines or a Parquet table with the field text, a "
        "folder of such files, or made-up sentences: small (English) or small-zh (Chinese)",
    )
    help_text = "the folder of the atlas; a run that was stopped goes on there"
    atlas.add_argument(*("-o", "--output"), type=Path, required=True, metavar="FOLDER", help=help_text)
    atlas.add_argument("--count", type=int, help="at most this many texts; 1,000 made-up ones by default")
    atlas.add_argument(
        "--workers",
        type=int,
        help="processes, each with one thread; on Ray by default one for each processor",
    )
    help_text = "use a Ray cluster: auto, local, or its address"
    atlas.add_argument("--ray", metavar="ADDRESS", help=help_text)
    _add_settings(atlas, "mini")

    static = command(
        "static", "write the small models as a page that computes in the browser, without a server"
    )
    help_text = (
        "a name that ends in .html: one file, opened by a double click, with a model of each language; or a "
        "folder for any static host, with all small models"
    )
    static.add_argument("output", metavar="FOLDER|PAGE.html", type=Path, help=help_text)
    static.add_argument("--link", default="", help="the link of the scene at which the page opens")

    opened = command("open", "open a saved trace, an atlas or a link in the app")
    help_text = (
        "a file of trace.save or headscope trace, a folder of headscope atlas, or a link of the app, in "
        "quotation marks"
    )
    opened.add_argument("opened", metavar="FILE|FOLDER|LINK", help=help_text)

    lesson = command("lesson", "open a lesson file in the app, or check its lines and questions")
    help_text = (
        "a lesson as a TOML file (assets/lessons/README.md says how to write one), or the number or name of "
        "one in Headscope"
    )
    lesson.add_argument("words", metavar="[check] FILE", nargs="+", help=help_text)

    check = command(
        "check",
        "compare multi-head attention that you wrote with torch's, and say what is wrong in it",
        " The file is run: check only code that you trust.",
    )
    check.add_argument("file", metavar="FILE", type=Path, help="a Python file with a torch module")
    check.add_argument("--class", dest="name", metavar="NAME", help="the class, if the file has several")
    check.add_argument("--h", type=int, help="the number of heads to try it with")
    check.add_argument("--d-model", type=int, help="the model width to try it with")
    help_text = "an argument of its constructor, as in bias=False; may be repeated"
    check.add_argument("--argument", action="append", default=[], metavar="NAME=VALUE", help=help_text)
    help_text = "which parameters are the matrices, as in q=W_q.weight,k=W_k.weight,v=W_v.weight,o=W_o.weight"
    check.add_argument("--weights", default="", metavar="NAMES", help=help_text)
    help_text = "what True in a mask means: keep (may be seen) or hide; added: −∞ for hidden keys is added"
    check.add_argument("--mask", choices=["keep", "hide", "added"], help=help_text)
    check.add_argument("--json", action="store_true", help="print the result for a program")
    check.add_argument("--timeout", type=float, default=60.0, help="seconds after which it stops")

    room = command("class", "open a room: lessons for a class on this network, with a desk for its teacher")
    help_text = (
        "the lessons in their order: each by its number or name in Headscope, or as a TOML file; by default 1"
    )
    room.add_argument("lessons", metavar="LESSON", nargs="*", help=help_text)
    help_text = "let everybody in the network do what you can: open any model and folder of this machine"
    room.add_argument("--own-limits", action="store_true", help=help_text)
    return parser


def _add_settings(parser: argparse.ArgumentParser, default: str) -> None:
    """The options of a source, and which one is taken by default."""
    other = "random" if default == "mini" else "mini"
    help_text = f"{default} (the default), {other}, or the id or folder of a Hugging Face model"
    parser.add_argument("--source", default=argparse.SUPPRESS, help=help_text)
    for name, (read, meaning) in SETTINGS.items():
        option = f"--{name.replace('_', '-')}"
        action = {"action": argparse.BooleanOptionalAction} if read is bool else {"type": read}
        parser.add_argument(option, **action, default=argparse.SUPPRESS, help=meaning)


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """The source and its settings, where they were given."""
    return {name: getattr(args, name) for name in ("source", *SETTINGS) if hasattr(args, name)}


def _output(word: str) -> Path:
    path = Path(word)
    if path.suffix not in WRITERS:
        *most, last = WRITERS
        raise argparse.ArgumentTypeError(f"{word!r} must end in {', '.join(most)} or {last}")
    return path


def _app(options: Sequence[str]) -> int:
    """Replace this process with `streamlit run app.py`."""
    command = [sys.executable, "-m", "streamlit", "run", str(resources.path("app.py")), *options]
    return os.execv(sys.executable, command)


def _open(word: str) -> None:
    """Tell the app what to open. A file that cannot be read is refused here, not in the browser."""
    from mha_core.scene import page

    if ("=" in word or "://" in word) and not Path(word).exists():
        os.environ[resources.LINK] = f"/{page.compose(page.parts(word))}"
    elif Path(word).is_dir():
        mha.Atlas(word)
        folder = Path(word).resolve()
        os.environ[resources.ATLAS] = str(folder)
        os.environ[resources.LINK] = f"/{page.compose(page.LinkParts('atlas', {'atlas': folder.name}))}"
    else:
        mha.load(word)
        os.environ[resources.OPENED] = str(Path(word).resolve())


def _open_lesson(word: str) -> None:
    """Leave for the app which lesson it is to offer and open."""
    from mha_core.lessons.lesson import shipped
    from mha_core.scene import page

    lesson = _lesson(word)
    if shipped().get(lesson.name) is not lesson:
        os.environ[resources.LESSON] = str(Path(word).resolve())
    os.environ[resources.LINK] = f"/{page.compose(page.LinkParts('lessons', {'lesson': lesson.name}))}"


def _open_room(words: Sequence[str], options: Sequence[str], *, own_limits: bool) -> list[str]:
    """Open a room, print how its class and its teacher come in, and return the options of its app.

    The app is reached by every machine of the network, on the port that is printed; it has the limits of a
    server for strangers, unless the class has the teacher's `own_limits`.
    """
    try:
        import segno

        from mha_core.room.rooms import DAYS, Rooms
    except ModuleNotFoundError as error:
        raise mha.MhaError(
            "Rooms need {name}, which is not installed: {command}",
            name=error.name,
            command=resources.install("room"),
        ) from None
    from mha_core.lessons.lesson import in_language

    lessons = [_lesson(word) for word in words or ("1",)]
    port = _option("server.port", options) or str(_free_port())
    host = _option("browser.serverAddress", options) or resources.address()
    base = _option("server.baseUrlPath", options).strip("/")
    page = f"http://{host}:{port}/{quote(base)}{'/' if base else ''}lessons"
    rooms = Rooms()
    try:
        before = rooms.going_on()
        code, secret = rooms.open(*lessons)
        students = f"{page}?room={rooms.invitation(code)}"
    finally:
        rooms.close()
    print(f"Room {code}: {', '.join(in_language(one.title, 'en') or one.name for one in lessons)}")
    print(f"Students:  {students}")
    print(f"Your desk: {page}?desk={code}#{secret}")
    print(f"The desk's link is yours alone. The room is deleted in {DAYS} days, or tomorrow if nobody joins.")
    print("The connection is not encrypted: use a network that you trust.")
    for before_code, expires, count in before:
        print(f"Room {before_code} goes on with {count_of(count, 'student')}, until {expires:%Y-%m-%d}.")
    if before:
        print(f"Its code and links still work at {page}, and so does your link to its desk.")
    segno.make_qr(students).terminal(compact=True)
    sys.stdout.flush()  # this process will be replaced
    os.environ[resources.ROOMS] = resources.THIS_MACHINE
    os.environ[resources.HOSTED] = "0" if own_limits else "1"
    ours = {"server.address": "0.0.0.0", "server.port": port}
    return [*options, *(f"--{name}={value}" for name, value in ours.items() if not _option(name, options))]


def _lesson(word: str) -> "Lesson":
    """A lesson: one of Headscope by its name or number, any other by the path of its file."""
    from mha_core.lessons.lesson import Lesson, files, shipped

    names = {file: name for name, file in files().items()}
    file = _lesson_file(word)
    return shipped()[names[file]] if file in names else Lesson.open(file)


def _lesson_file(word: str) -> Path:
    """The file of a lesson: a word with an ending, or an existing file, is a path, others are names."""
    from mha_core.lessons.lesson import files

    if Path(word).exists():
        return Path(word)
    if Path(word).suffix:
        raise mha.MhaError(
            "There is no file {path}; the lessons of Headscope are called {names}.",
            path=word,
            names=listed(files(), "and"),
        )
    numbers = {str(number): name for number, name in enumerate(files(), start=1)}
    name = numbers[one_of("lesson", word, numbers)] if word.isdecimal() else one_of("lesson", word, files())
    return files()[name]


def _option(name: str, options: Sequence[str]) -> str:
    """The value that one of Streamlit's options was given; "" where it was not."""
    given = ""
    for word, following in zip(options, [*options, ""][1:], strict=True):
        key, equals, value = word.partition("=")
        if key == f"--{name}":
            given = value if equals else following
    return given


def _free_port() -> int:
    """The port that the app will have: the first one that nobody has."""
    for port in range(FIRST_PORT, FIRST_PORT + 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise mha.MhaError("All ports from {first} are taken; name another with --server.port.", first=FIRST_PORT)


def _check_lesson(word: str) -> int:
    """Print what is wrong in a lesson, or each screen with the margin of its key; 1 where something is."""
    from mha_core.lessons.lesson import MAX_WORDS, Lesson, LessonError, in_language, screen_lines

    file = _lesson_file(word)
    try:
        lesson = Lesson.open(file)
    except LessonError as error:
        for line, message in error.problems:
            print(f"{word}:{line}: {message}")
        return 1
    wrong, lines = 0, screen_lines(file.read_text(encoding="utf-8"))
    for language in lesson.languages:
        refused = dict(lesson.check(language))
        wrong += len(refused)
        for number, screen in enumerate(lesson.screens, start=1):
            place = f"{word}:{lines[number - 1]}: screen {number} ({language}), {screen.question.kind}"
            print(f"{place}: {refused.get(number) or _key_of(screen.item(language))}")
            if (count := len(in_language(screen.ask, language).split())) > MAX_WORDS:
                print(f"{place}: the question has {count} words; {MAX_WORDS} are enough before the first act")
    return 1 if wrong else 0


def _check_module(args: argparse.Namespace) -> int:
    """Print whether a module equals torch's attention, or its first difference and the reason; 1 if not."""
    import torch

    from mha_core.differences.check import check

    def stop() -> None:
        print(
            f"headscope: {args.file} was stopped after {args.timeout:g} seconds.", file=sys.stderr, flush=True
        )
        os._exit(1)

    timer = Timer(args.timeout, stop)
    timer.daemon = True
    timer.start()
    torch.set_num_threads(1)  # its tensors are small
    try:
        with redirect_stdout(sys.stderr):  # what the module prints is no part of the report
            report = check(
                args.file,
                name=args.name,
                h=args.h,
                d_model=args.d_model,
                arguments={name: _value(value) for name, value in map(_pair, args.argument)},
                weights=dict(_pair(word) for word in args.weights.split(",") if word),
                mask=args.mask,
            )
    except SystemExit as error:
        raise mha.MhaError(
            "{file} ends the program. Put what runs it below: if __name__ == '__main__'.", file=args.file
        ) from error
    finally:
        timer.cancel()
    print(json.dumps(report.to_json(), ensure_ascii=False, indent=1) if args.json else report)
    return 0 if report.equal else 1


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise mha.MhaError("Give a name and a value, as in bias=False; got {word}.", word=word)
    return name, value


def _value(word: str) -> object:
    """A number, True, False, None or a list as Python writes it; any other word is a text."""
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word


def _key_of(item: "Item") -> str:
    """The right answers and their margin."""
    from mha_core.lessons.question import in_words

    answers, margin = item.key
    if not answers:
        return "no key"
    told = " or ".join(in_words(item, answer) for answer in answers)
    return f"{told} (margin {margin:.2f})" if math.isfinite(margin) else told


def _trace(args: argparse.Namespace) -> int:
    from mha_core.traces import storage

    path = args.output
    storage.check_folder(path)  # before a model is loaded in vain
    if args.link is not None:
        return _trace_link(args.link, path)
    trace = mha.trace(args.text, **_settings(args))
    if args.kind is not None:
        trace = trace.part(args.kind)
    elif path.suffix == ".html" and len(trace.kinds) > 1:
        raise mha.MhaError(
            "A page shows layers of one kind, and the kinds here are {kinds}; "
            "choose one, as in --kind {kind}.",
            kinds=listed(trace.kinds, "comma"),
            kind=trace.kinds[-1],
        )
    return _write(trace, path)


def _atlas(args: argparse.Namespace) -> int:
    """Make an atlas, with its plan and its progress on the error stream, and print its folder."""
    atlas = mha.atlas(
        args.texts,
        out=args.output,
        count=args.count,
        workers=args.workers,
        ray=args.ray,
        progress=_say_progress,
        **_settings(args),
    )
    heads, n_left_out = sum(atlas.manifest["heads"]), len(atlas.left_out)
    left_out = f", {n_left_out:,} of them left out" if n_left_out else ""
    print(f"{args.output}: {count_of(atlas.n_texts, 'text')}{left_out}, {count_of(heads, 'head')}")
    for reason, count in atlas.left_out["reason"].value_counts().head(MOST_REASONS).items():
        print(f"  {count:,} left out: {reason}")
    print(f"Look at it with: headscope open {shlex.quote(str(args.output))}")
    return 0


def _static(args: argparse.Namespace) -> int:
    """Write a page or a folder that needs no server, and say how to open it."""
    from mha_core.static import site

    if args.output.suffix == ".html":
        site.save_page(args.output, args.link)
        print(f"{args.output}: {args.output.stat().st_size / 1e6:.1f} MB; open it in a browser")
        return 0
    if args.link:
        raise mha.MhaError("A folder opens every link; --link is for a page, as in page.html.")
    count = site.save_folder(args.output)
    print(f"{args.output}: {count} files for any static host; open {args.output / 'index.html'} to try it")
    return 0


def _say_progress(progress: "Progress") -> None:
    """Print one line on how far an atlas is: "3 of 40 shards of 90 texts are done; about 12 min 5 s left"."""
    line = f"{progress.done:,} of {progress.shards:,} shards of {progress.texts:,} texts are done"
    if progress.seconds is not None and progress.bytes is not None:
        minutes, seconds = divmod(round(progress.seconds), 60)
        left = f"{minutes:,} min {seconds} s" if minutes else f"{seconds} s"
        again = f", {progress.again:,} done again after a worker died" if progress.again else ""
        line += f"; about {left} left, {progress.bytes / 1e6:,.1f} MB in all{again}"
    print(line, file=sys.stderr, flush=True)


def _trace_link(link: str, path: Path) -> int:
    """The trace of a link's scene; a page opens where the link does. Refused values are reported."""
    from mha_core.scene.places import clamped, shape_of
    from mha_core.scene.scene import view

    scene, refused = mha.Scene.of_link(link)
    for name, value, reason, replacement in refused:
        repair = f"{replacement} is used instead" if replacement not in (None, "") else "it is left out"
        print(f"headscope: the link has {name}={value}, but {reason}; {repair}", file=sys.stderr)
    trace = scene.trace()
    asked, inside = scene.focus, clamped(scene.focus, [shape_of(trace)]) if trace.layers else scene.focus
    for name in ("layer", "head"):
        value, last = getattr(asked, name), getattr(inside, name)
        if value not in (last, getattr(type(asked), name)):
            print(f"headscope: the link has {name}={value}; {last} is used instead", file=sys.stderr)
    return _write(trace, path, view=view(trace, scene) if path.suffix == ".html" else None)


def _write(trace: "AttentionTrace", path: Path, *, view: "HeadView | None" = None) -> int:
    """Write the trace in the format of the file's ending, a page with this view, and print a summary."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if view is None:
            WRITERS[path.suffix](trace, path)
        else:
            view.save(path)
    for one in said:
        print(f"headscope: {one.message}", file=sys.stderr)
    heads = sum(layer.n_heads for layer in trace.layers)
    parts = {"token": len(trace.tokens), "layer": len(trace.layers), "head": heads}
    print(f"{path}: {', '.join(count_of(count, noun) for noun, count in parts.items())}")
    return 0


def _csv(trace: "AttentionTrace", path: Path) -> None:
    """Every weight: layer, head, query, key; counted from 1, and safe for spreadsheets, as in the app."""
    from mha_core.analysis import frames
    from mha_core.traces.storage import replacing

    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        for number in range(len(trace.layers)):
            for table in frames.long_tables(trace, "weights", layer=number):
                frames.without_formulas(table).to_csv(file, index=False, header=not file.tell())


def _npz(trace: "AttentionTrace", path: Path) -> None:
    """weights_0, q_0, k_0, v_0 of layer 0 and so on, with the labels in queries_0 and keys_0."""
    import numpy as np

    from mha_core.traces.storage import replacing

    with replacing(path) as temporary, ZipFile(temporary, "w", ZIP_DEFLATED) as archive:
        for number, layer in enumerate(trace.layers):
            sides = {"queries": layer.sides.queries, "keys": layer.sides.keys}
            arrays = {name: np.array(tokens.labels) for name, tokens in sides.items()}
            arrays |= {name: getattr(layer, name) for name in ("q", "k", "v") if layer.knows(name)}
            for name, array in arrays.items():
                with archive.open(f"{name}_{number}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array)
            with archive.open(f"weights_{number}.npy", "w", force_zip64=True) as file:
                for head in range(layer.n_heads):  # one at a time: all may not fit into memory
                    weights = layer.weights(head)
                    if head == 0:
                        shape = (layer.n_heads, *weights.shape)
                        header = {"descr": weights.dtype.str, "fortran_order": False, "shape": shape}
                        np.lib.format.write_array_header_1_0(file, header)
                    file.write(weights.tobytes())


WRITERS = {
    ".html": lambda trace, path: trace.view().save(path),
    ".csv": _csv,
    ".npz": _npz,
    ".safetensors": lambda trace, path: trace.save(path),
}

if __name__ == "__main__":
    sys.exit(main())
