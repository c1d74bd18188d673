"""What would you answer? Lessons, one screen at a time: predict, then see your answer run in the model."""

import streamlit as st

from pages.learn._lessons import acts, cards, desk, editor, ending, place, screen, seat, worksheet

acts.begin()
here = None if place.room_code() else place.opened()
if place.projected():
    with st.container(key="projected"):  # which leaves the app around the page out (streamlit/app.css)
        st.empty()
if place.room_code():
    seat.page()
elif place.desk_code():
    desk.page()
elif st.query_params.get("lesson") == place.MAKE:
    editor.page()
elif here is None:
    cards.page()
elif st.query_params.get("worksheet") == "1":
    worksheet.page(here.lesson)
else:
    editor.way_back(here)
    if here.number > len(here.lesson.screens):
        ending.page(here)
    else:
        screen.page(here)
