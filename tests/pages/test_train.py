"""The page Train: a training is started, shared, stopped, saved, and its model used everywhere."""

import time
from dataclasses import replace

import numpy as np
import pytest
import streamlit as st

from mha_core.sources.mini import follow
from mha_core.training import queue as queues
from mha_core.training.checkpoints import untrained
from mha_core.training.fit import LIVE, Plan, Training
from pages._kit import compute
from pages._kit.text import literal
from pages.learn._train import training
from tests.pages.conftest import sent

PAGE = "learn/train.py"
STEPS = 12


@pytest.fixture(autouse=True)
def short(monkeypatch, little):
    """Trainings of a few steps and sentences, in a queue of this test only."""
    monkeypatch.setitem(LIVE, "steps", STEPS)
    monkeypatch.setattr(queues, "PAIRS", 1)
    st.cache_resource.clear()
    yield
    compute.trainings().close()
    st.cache_resource.clear()


def started(app, **settings):
    """The job of a training that is started on a page, once it has ended; the page shows it."""
    app.button(key="start").click().run()
    end, plan_ = time.monotonic() + 600, plan(**settings)
    while (job := compute.trainings().find(plan_)) is None or job.state not in ("finished", "failed"):
        assert time.monotonic() < end, "it never ended"
        time.sleep(0.02)
    assert job.state == "finished", job.error
    app.run()
    return job


def plan(**settings) -> Plan:
    return Plan(**{"h": 4, "d_model": 64} | LIVE | settings)


@pytest.mark.slow
def test_a_run_is_looked_at_on_every_page_at_the_step_that_is_chosen(on_page, opened, shows, place):
    app = on_page(train_h=2, train_d_model=32)
    app.number_input(key="train_seed").set_value(3)
    job = started(app, h=2, d_model=32, seed=3)  # before a run has seen the seed
    app.select_slider(key="train_step").set_value(7).run()
    app.button(key="look").click().run()
    assert sent(app, "address")["follow"] == training.TO_HEADS
    app.switch_page("see/heads.py").run()
    assert sent(app, "address")["follow"] is None
    linked = {name: app.query_params[name] for name in ("source", "run", "step")}
    assert linked == {"source": "run", "run": job.name, "step": "7"}
    alone = Training(job.plan)
    for step, visitor in ((7, app), (7, opened(**linked)), (STEPS, app)):
        if step == STEPS:
            app.select_slider(key="step").set_value(STEPS).run()
        assert not visitor.error
        alone.advance(step - alone.step)
        model = replace(untrained(job.plan), model=alone.model, step=step)
        layer, head, _ = place(visitor)
        shows(visitor, follow(model, visitor.text_area(key="text").value), layer=layer, head=head)


@pytest.mark.slow
def test_a_run_is_opened_only_by_its_visitor_or_its_link(on_page, opened, english):
    app, other = on_page(), opened()
    job = started(app)
    for visitor in (app, other):
        visitor.switch_page("see/heads.py").run()
    offered = [english("source.run") in one.selectbox(key="shown_source").options for one in (app, other)]
    assert offered == [True, False]
    assert app.selectbox(key="shown_source").set_value("run").run().selectbox(key="run").value == job.name
    assert opened(source="run", run=job.name).selectbox(key="run").options == [job.name]
    compute.trainings().close()
    compute.trainings.clear()  # as when the server starts again
    after = opened(source="run", run=job.name)
    assert not after.error
    assert after.selectbox(key="run").options == [job.name]
    for link, refusal in (
        ({}, "None of the models that were trained here is chosen"),
        ({"run": "glass-box-en-h2-d32-s9"}, "is called 'glass-box-en-h2-d32-s9'"),
        ({"run": job.name, "step": 5000}, f"{job.name} has no step 5,000"),
    ):
        visitor = opened(source="run", **link)
        assert visitor.selectbox(key="shown_source").value == "run"
        [error] = visitor.error
        assert literal(refusal) in error.value
        assert (error.proto.title == english("run.gone")) == ("step" not in link)
        labels = {button.label for button in visitor.button}
        assert (english("real.use_mini") in labels) == ("step" not in link)
        assert "head_view" not in {element.key for element in visitor.get("bidi_component")}
        assert english("run.train") in [link.proto.label for link in visitor.get("page_link")]


@pytest.mark.slow
def test_each_recorded_step_can_be_chosen_and_is_shown(on_page, english, eye, monkeypatch):
    monkeypatch.setitem(LIVE, "bare", 4)
    job = started(app := on_page())
    [chart] = app.get("plotly_chart")
    assert english("train.all_join") in chart.proto.spec  # the step where all sentences join
    slider = app.select_slider(key="train_step")
    assert [int(option) for option in slider.options] == [record.step for record in job.records]
    for record in (job.records[-1], job.records[0]):
        app.select_slider(key="train_step").set_value(record.step).run()
        header, panels = eye(app, "train_heads")
        for panel, layers in zip(panels, record.weights, strict=True):
            for shown, weights in zip(panel["layers"], layers, strict=True):
                np.testing.assert_allclose(shown["weights"], weights, atol=2e-5)
        assert header["source"] == f"{job.name}, step {record.step:,}"
        assert panels[0]["tokens"][header["token"]] == "it"
        assert header["follows"] is False  # there is no page below that could follow
    told = english("train.now", step="0", answer=f"{100 * record.answer:.0f}", right=f"{record.right:.2f}")
    assert told in [markdown.value for markdown in app.markdown]


def test_two_visitors_share_one_training(on_page, english):
    first, second = on_page(), on_page()
    assert [info.value for info in second.info] == [english("train.empty")]
    assert second.button(key="start").label == english("train.start")  # not "Continue"
    job = started(first)
    second.run()
    assert compute.trainings().find(plan()) is job
    for page in (second, on_page()):  # and again after a reload
        assert page.button(key="look")
        assert page.select_slider(key="train_step")


def test_waiting_visitors_see_their_place(on_page, english, monkeypatch):
    monkeypatch.setattr(Training, "advance", lambda run, steps: time.sleep(0.05) or 1.0)  # it never gets on
    apps = [on_page(train_seed=seed) for seed in range(3)]
    for app in apps:
        app.button(key="start").click().run()
    jobs = [compute.trainings().find(plan(seed=seed)) for seed in range(3)]
    assert compute.trainings().place(jobs[2]) == 1
    apps[2].run()
    texts = [element.proto.text for element in apps[2].get("progress")]
    assert texts == [english("train.waiting", place=2)]
    compute.trainings().start(plan(seed=3), "another visit")
    guest = on_page(train_seed=3)  # who has not asked for it and cannot stop it
    assert [one.key for one in guest.button if one.key == "stop"] == []
    assert english("train.shared") in [caption.value for caption in guest.caption]
    for job, app in zip(jobs, apps, strict=True):
        app.button(key="stop").click().run()
        assert not job.users


@pytest.mark.slow
def test_a_saved_model_can_be_opened_and_only_its_visitor_sees_it(on_page, opened, english):
    app = on_page()
    job = started(app)
    bytes_ = training.file_of(job.trained)
    app.run()
    app.file_uploader(key="opened").set_value(("mine.safetensors", bytes_, "application/octet-stream")).run()
    assert app.success
    [said] = [success.value for success in app.success]
    again = [success.value for success in app.run().success]
    assert again == [said]  # one model, however often the page runs
    app.button(key="look_opened").click().run()
    name = app.session_state["run"]
    assert name.startswith(f"{job.name}-")
    assert english("source.run") not in opened().selectbox(key="shown_source").options
    assert opened(source="run", run=name).selectbox(key="run").options == [name]
    reopened = compute.trainings().model(app.session_state["run"])
    assert reopened is not job.trained
    difference = reopened.model.embedding - job.trained.model.embedding
    assert difference.abs().max() < 1e-2  # it travelled in half precision


def test_a_visitor_without_places_gets_a_link_to_the_waiting_training(on_page, monkeypatch):
    monkeypatch.setattr(queues.Trainings, "_loop", lambda queue: None)  # all of them wait
    app = on_page(train_h=2, train_d_model=32, lang="en")
    app.button(key="start").click().run()
    for seed in range(1, compute.trainings().max_waiting_of_user + 1):
        app.number_input(key="train_seed").set_value(seed).run()
        app.button(key="start").click().run()
    [refusal] = app.warning
    assert "wait for you already" in refusal.value
    assert not app.info  # nothing about a start that cannot be
    app.button(key="waits_0").click().run()
    assert app.number_input(key="train_seed").value == 0
    app.button(key="stop").click().run()
    assert compute.trainings().find(plan(h=2, d_model=32)) is None


def test_another_file_is_refused_and_named(on_page):
    app = on_page()
    file = ("thing.safetensors", b"not a model", "application/octet-stream")
    app.file_uploader(key="opened").set_value(file).run()
    assert "thing" in app.error[0].value
    assert "/tmp" not in app.error[0].value
    assert "runs" not in app.session_state


def test_sizes_that_do_not_fit_are_refused_with_the_nearest_that_do(on_page):
    app = on_page(train_h=7, train_d_model=64)
    [error] = app.error
    assert error.value == literal(
        "d_model 64 cannot be split into 7 heads; 63 or 70 can. With d_model 64, 4 or 8 heads work."
    )
    app.button[0].click().run()
    assert not app.error
    assert app.number_input(key="train_d_model").value == 63
    assert app.button(key="start")
