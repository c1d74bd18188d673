"""What would you answer? Lessons, one screen at a time: predict, then see your answer run in the model."""

from pages.learn._lessons import acts, cards, desk, editor, ending, place, screen, seat, worksheet

acts.begin()
here = None if place.room_code() else place.opened()
place.mark_projected()
if place.room_code():
    seat.page()
elif place.desk_code():
    desk.page()
elif place.is_making():
    editor.page()
elif here is None:
    cards.page()
elif place.prints():
    worksheet.page(here.lesson)
else:
    editor.way_back(here)
    if here.number > len(here.lesson.screens):
        ending.page(here)
    else:
        screen.page(here)
