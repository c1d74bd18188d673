"""Where a published number is from: the paper, and its table or section."""

from mha_core.errors import Phrase


def citation(
    paper: str | None = None, *, table: str | None = None, section: str | None = None, also: str | None = None
) -> Phrase:
    """A source as it is cited; without a `paper` the number is Headscope's own.

    `also` is what else it is from or about: "configuration" (the published one) or "encoder" (its layers).
    """
    if paper is None:
        return Phrase("measured for Headscope, on other sentences")
    place = Phrase(paper)
    if table:
        place = Phrase("{paper}, table {table}", paper=paper, table=table)
    if section:
        place = Phrase("{paper}, section {section}", paper=paper, section=section)
    if also == "configuration":
        return Phrase("{source}, and the published configuration", source=place)
    if also == "encoder":
        return Phrase("{source}; layers of the encoder", source=place)
    return place
