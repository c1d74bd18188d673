"""What would you answer? Lessons, one screen at a time: predict, then see your answer run in the model."""

from pages.learn._lessons import cards, ending, place, screen

here = place.opened()
place.mark_projected()
if here is None:
    cards.page()
elif here.number > len(here.lesson.screens):
    ending.page(here)
else:
    screen.page(here)
