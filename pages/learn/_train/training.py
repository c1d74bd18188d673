"""A training: its settings, its progress, and its heads at each step."""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd
import streamlit as st

from mha_core import MhaError
from mha_core.analysis.frames import Origin
from mha_core.attention.module import MAX_HEADS, AttentionSpec
from mha_core.figures.curves import curves
from mha_core.traces.source import DECODER, RunSource
from mha_core.traces.storage import named
from mha_core.training import checkpoints
from mha_core.training.evaluation import famous
from mha_core.training.fit import LIVE, LIVE_WIDTHS, Plan
from mha_core.training.lexicon import LANGUAGES
from mha_core.training.model import ARCHITECTURES
from mha_core.training.queue import Job, famous_tokens
from pages._kit import charts, choice, compute, head_view, model_info, refusals, state, uploads
from pages._kit.text import DEFAULT, PAGES, begin_in_language, literal, said, t
from pages._server import limits

MAX_SEED = 999
TO_HEADS = "look_link"  # key of the link that "Look at its heads" follows; it shows nothing
ENCODERS = [name for name in ARCHITECTURES if not name.startswith(DECODER)]


def page() -> None:
    st.title(t("train.heading"), anchor=False)
    st.caption(t("train.intro", bare=LIVE["bare"]))
    model_info.note_small_models_only()
    plan = _plan()
    _buttons(plan)
    _watch(plan)
    _files(plan)


def _plan() -> Plan:
    """The settings of the training, from controls that URL parameters can set."""
    cells = st.grid(5, min_column_width=140)
    with cells.container():
        _number("train_h", 1, MAX_HEADS, 4)
    with cells.container():
        _number("train_d_model", LIVE_WIDTHS[0], LIVE_WIDTHS[-1], 64)
    with cells.container():
        _choice("architecture", ENCODERS, "glass-box")
    with cells.container():
        begin_in_language("train_language")
        _choice("language", list(LANGUAGES), DEFAULT)
    with cells.container():
        _number("train_seed", 0, MAX_SEED, 0)
    try:
        return _chosen()
    except MhaError as error:
        live = [fix for fix in error.fixes if "h" in fix or fix["d_model"] in LIVE_WIDTHS]
        refusals.misfit(error, "train_", live)
        st.stop()


def _chosen() -> Plan:
    """The settings as the controls are now. Raises `MhaError` for sizes that do not fit together."""
    names = ("architecture", "h", "d_model", "language", "seed")
    architecture, h, d_model, language, seed = (st.session_state[f"train_{name}"] for name in names)
    AttentionSpec(d_model, h)
    return Plan(architecture, h, d_model, language, seed, **LIVE)


def _number(key: str, minimum: int, maximum: int, default: int) -> None:
    label, help_text = t(f"control.{key}"), t(f"control.{key}_help")
    st.number_input(label, minimum, maximum, default, key=key, help=help_text, bind="query-params")


def _choice(field: str, names: Sequence[str], default: str) -> None:
    key = f"train_{field}"
    words, help_text = partial(choice.word, field), t(f"control.{key}_help")
    choice.draw(st.selectbox, t(f"control.{key}"), key, names, default, words=words, help=help_text)


def _buttons(plan: Plan) -> None:
    """The button that starts, continues or stops the training, or shows its model on the page Heads."""
    queue, job, visitor = compute.trainings(), compute.trainings().find(plan), _visitor()
    with st.container(horizontal=True):
        if job is None or job.state in ("stopped", "failed"):
            label = t("train.continue") if job and job.step else t("train.start")
            st.button(
                label,
                type="primary",
                icon=":material/play_arrow:",
                key="start",
                on_click=_start,
            )
        elif job.state != "finished" and visitor in job.users:
            st.button(
                t("train.stop"), icon=":material/stop:", key="stop", on_click=queue.stop, args=(plan, visitor)
            )
        elif job.state != "finished":
            st.caption(t("train.shared"))
        else:
            st.button(
                t("train.look"),
                type="primary",
                icon=":material/visibility:",
                key="look",
                on_click=_look,
                args=(job.name,),
                help=t("train.look_help"),
            )
    with st.container(key=TO_HEADS):
        st.page_link(PAGES / "see/heads.py", label=t("train.look"))


def _look(name: str) -> None:
    """Show this model on the page Heads, as it was at the step that is chosen here."""
    steps, step = compute.trainings().steps(name), st.session_state.get("train_step")
    compute.remember_run(name)
    state.follow(TO_HEADS, source="run", run=name, step=step if step in steps else steps[-1], layer=2)


def _start() -> None:
    """Start the training of the settings as they are now: a press may come before a run has seen them."""
    try:
        plan = _chosen()
    except MhaError:  # which the page says
        return
    try:
        job = compute.trainings().start(plan, _visitor())
        compute.remember_run(job.name)
    except MhaError as error:
        st.session_state.train_refused = error


@st.cache_resource(
    scope="session", show_spinner=False, on_release=lambda visitor: compute.trainings().leave(visitor)
)
def _visitor() -> str:
    """The name of this session; a training stops when no session waits for it, or when all have ended."""
    return uuid4().hex


def _watch(plan: Plan) -> None:
    """The progress and the heads of the training; redrawn every second while it runs."""
    refused, job = st.session_state.pop("train_refused", None), compute.trainings().find(plan)
    if refused is not None:
        _full(refused)
    elif job is None:
        st.info(t("train.empty"), icon=":material/model_training:")
    if job is None:
        return
    active = job.state in ("waiting", "running")
    st.fragment(_progress_and_figures, run_every=1.0 if active else None)(plan, active)


def _full(error: MhaError) -> None:
    """Say that the queue is full, with a button to each waiting training of the visitor, to stop it there."""
    st.warning(literal(said(error)), icon=":material/hourglass_top:")
    with st.container(horizontal=True):
        for number, fix in enumerate(error.fixes):
            values = {f"train_{name}": value for name, value in fix.items()}
            label = t("train.waits", h=fix["h"], d_model=fix["d_model"], seed=fix["seed"])
            st.button(label, key=f"waits_{number}", on_click=st.session_state.update, kwargs=values)


def _progress_and_figures(plan: Plan, active: bool) -> None:
    job = compute.trainings().find(plan)
    if job is None or (active and job.state not in ("waiting", "running")):
        st.rerun()  # the whole page: its buttons have changed
    _progress(job)
    records = list(job.records)
    if not records:
        return
    at = len(records) - 1
    if len(records) > 1 and not active:
        steps = [record.step for record in records]
        step = st.select_slider(
            t("train.scrub"), steps, steps[-1], help=t("train.scrub_help"), key="train_step"
        )
        at = steps.index(step)
    _figures(job, records, at)


def _progress(job: Job) -> None:
    reason = f"error {job.name}" if limits.current().hosted else job.error  # the log of strangers has it
    words = {
        "waiting": t("train.waiting", place=compute.trainings().place(job) + 1),
        "running": t("train.running", step=f"{job.step:,}", steps=f"{job.plan.steps:,}"),
        "stopped": t("train.stopped", step=f"{job.step:,}", steps=f"{job.plan.steps:,}"),
        "finished": t("train.finished", steps=f"{job.plan.steps:,}"),
        "failed": t("train.failed", reason=literal(reason)),
    }[job.state]
    st.progress(job.step / job.plan.steps, words)
    if job.unsaved:
        st.caption(t("train.unsaved", reason=literal(said(job.unsaved))))


def _figures(job: Job, records: list, at: int) -> None:
    record = records[at]
    tokens = famous_tokens(job.plan.language)
    st.markdown(
        t(
            "train.now",
            step=f"{record.step:,}",
            answer=f"{100 * record.answer:.0f}",
            right=f"{record.right:.2f}",
        )
    )
    layer = min(state.focus().layer, len(record.weights[0])) - 1
    head_view.draw_weights(
        list(zip(record.weights, tokens, strict=True)),
        layer=layer,
        token=int(famous(job.plan.language).pronoun[0]),
        source=t("train.at_step", name=job.name, step=f"{record.step:,}"),
        key="train_heads",
    )
    rows = [{"loss": one.loss, **one.stages, "right": one.right} for one in records]
    frame = pd.DataFrame(rows, [one.step for one in records])
    figure = curves(
        frame.astype(float),
        names={column: t(f"train.curve.{column}") for column in frame},
        step=t("train.step"),
        marked=record.step if at < len(records) - 1 else None,
        events={job.plan.bare: t("train.all_join")},
        narrow=state.on_phone(),
    )
    plan = job.plan
    sizes = (plan.h, plan.d_model, plan.seed, records[-1].step, plan.steps)
    charts.draw(
        figure,
        key="train_curves",
        alt=t("train.alt", answer=f"{record.answer:.2f}"),
        title=t("train.curves"),
        origin=Origin(RunSource(plan.architecture, plan.language, *sizes, name=job.name)),
        config=charts.BARS_CONFIG,
    )


def _files(plan: Plan) -> None:
    """Download a finished model, or open one from a file."""
    job = compute.trainings().find(plan)
    with st.expander(t("train.files")):
        if job and job.trained:
            st.download_button(
                t("train.download"),
                partial(file_of, job.trained),
                file_name=f"{job.name}.safetensors",
                mime="application/octet-stream",
                on_click="ignore",
            )
        upload = st.file_uploader(
            t("train.open", megabytes=uploads.megabytes()),
            type="safetensors",
            help=t("train.open_help"),
            key="opened",
            max_upload_size=uploads.megabytes(),
        )
        if upload is not None:
            _open(upload)


def file_of(trained: checkpoints.Trained) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        checkpoints.save_model(path, trained)
        return path.read_bytes()


def _open(upload: Any) -> None:
    opened = st.session_state.get("opened_model", (None, None))
    if opened[0] != upload.file_id:  # each upload is one model, in however many runs of the page
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            path.write_bytes(upload.getvalue())
            try:
                with named(path, upload.name):
                    opened = upload.file_id, compute.trainings().add(checkpoints.load_model(path))
            except MhaError as error:
                st.error(literal(said(error)))
                return
        st.session_state["opened_model"] = opened
    name = opened[1]
    compute.remember_run(name)
    st.success(t("train.opened", name=literal(name)))
    st.button(t("train.look"), key="look_opened", on_click=_look, args=(name,))
