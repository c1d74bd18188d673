"""A teacher makes a lesson in the app, tries it, keeps it through a reload, and gives it out."""

import tomllib

from playwright.sync_api import expect

MAX_ACTS = 30  # clicks and fields for three questions


def test_three_questions_are_made_in_few_acts_and_given_out(visit, app, settled, tmp_path):
    page, acts = visit(app), []

    def click(role: str, name: str, nth: int = 0) -> None:
        page.get_by_role(role, name=name).nth(nth).click()
        acts.append(name)
        settled(page)

    def fill(label: str, text: str, nth: int = 0) -> None:
        field = page.get_by_label(label, exact=True).nth(nth)
        field.fill(text)
        field.press("Tab")
        acts.append(label)
        settled(page)

    def choose(label: str, option: str, nth: int) -> None:
        field = page.get_by_role("combobox", name=label).nth(nth)
        field.evaluate("field => field.scrollIntoView({ block: 'center' })")
        field.click()
        page.get_by_role("option", name=option).click()
        acts.extend([label, option])
        settled(page)

    click("link", "Turn this into a question")
    expect(page.get_by_role("heading", name="Make a lesson")).to_be_visible()
    expect(page.get_by_text("The computed answer: animal")).to_be_visible()
    fill("Title", "Whose hunger?")
    fill("Your question", "Where does *it* look?")
    click("button", "Add a question")
    choose("The student", "draws the row", nth=1)
    fill("Sentence", "The dog chased the cat because it was hungry.", nth=1)
    click("button", "Add a question")
    choose("The student", "flips the answer by one change", nth=2)
    expect(page.get_by_text("cannot see")).to_be_visible()  # its own answer
    assert len(acts) <= MAX_ACTS

    page.get_by_text("Hints, and after the answer").nth(1).click()
    settled(page)
    page.get_by_text("Show how it is computed").locator("visible=true").click()
    settled(page)
    page.get_by_text("Goal, and a question on paper").click()
    fill("Question on paper, a week later", "Draw it again.")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as a file").click()
    download.value.save_as(tmp_path / "lesson.toml")
    saved = tomllib.loads((tmp_path / "lesson.toml").read_text(encoding="utf-8"))
    assert (saved["title"], saved["paper"]) == ("Whose hunger?", "Draw it again.")
    assert [screen["kind"] for screen in saved["screens"]] == ["point", "draw", "flip"]
    assert [screen.get("light", False) for screen in saved["screens"]] == [False, True, False]
    link = page.locator(".code-block pre", has_text="lesson=own").inner_text()

    click("button", "Try it as a student")
    expect(page.locator(".lesson .place")).to_have_text("1 of 3")
    click("button", "Back to making this lesson")
    page.reload()
    settled(page)
    expect(page.get_by_label("Title", exact=True)).to_have_value("Whose hunger?")

    student = visit(link)  # another browser
    expect(student.locator(".lesson .place")).to_have_text("1 of 3")
    expect(student.get_by_role("heading", name="Where does it look?")).to_be_visible()


def test_a_question_without_a_clear_answer_is_named_while_it_is_made(visit, app, settled):
    page = visit(f"{app}/lessons?lesson=make&scene=here&text=How are you?&token=you")
    expect(page.get_by_text("This question has no clear answer here")).to_be_visible()
    page.get_by_label("Sentence", exact=True).fill("The dog chased the cat because it was hungry.")
    page.get_by_label("Sentence", exact=True).press("Enter")
    settled(page)
    expect(page.get_by_text("The computed answer")).to_be_visible()
    page.get_by_role("button", name="Remove").click()
    settled(page)
    expect(page.get_by_label("Sentence", exact=True)).to_have_count(0)
