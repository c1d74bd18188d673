"""What the pages know of the inside of Streamlit stands in one file, and the installed Streamlit has it."""

import re
from pathlib import Path

import pytest
import streamlit as st

from pages._kit import streamlit_parts

ROOT = Path(__file__).parents[2]
BUNDLE = Path(st.__file__).parent / "static" / "static" / "js"
PRIVATE = re.compile(r"data-testid|st-key-|stElement|stSkeleton|stSidebar|stBaseButton|emotion|light-dark")


@pytest.fixture(scope="module")
def bundle() -> str:
    return "".join(file.read_text(encoding="utf-8") for file in BUNDLE.glob("*.js"))


@pytest.mark.parametrize(
    "name",
    [
        "stSidebar",
        "stElementToolbar",
        "stSkeleton",
        "data-tag",
        "st-key-",
        "stTopNav",
        "stSidebarNavItems",
        "stExpandSidebarButton",
    ],
)
def test_streamlit_still_calls_its_parts_so(bundle, name):
    assert name in bundle


def test_a_primary_button_still_has_its_name(bundle):
    assert "stBaseButton-" in bundle  # and its kind
    assert re.search(r"""["'`]primary["'`]""", bundle)


def test_each_part_is_named_in_the_rules():
    parts = [
        value for name, value in vars(streamlit_parts).items() if name.isupper() and isinstance(value, str)
    ]
    assert parts
    rules = streamlit_parts._rules() + streamlit_parts._navigation({1: "See"}, "Menu")
    assert [part for part in parts if part not in rules] == []


@pytest.mark.parametrize("pattern", streamlit_parts.EARLY)
def test_streamlit_still_has_each_file_that_is_named_early(pattern):
    assert len(list(streamlit_parts.STATIC.glob(pattern))) == 1


def test_no_other_file_of_the_pages_knows_them():
    files = {
        file.relative_to(ROOT).as_posix(): file.read_text("utf-8") for file in ROOT.glob("pages/**/*.py")
    }
    assert [name for name, text in files.items() if PRIVATE.search(text)] == ["pages/_kit/streamlit_parts.py"]
