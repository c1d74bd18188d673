"""The input of a decoder for a target: its tokens shifted right by one."""

from types import SimpleNamespace

from mha_core.sources.huggingface.targets import decoder_ids

START, END = 1, 2


class Tokenizer:
    """Writes the start token and the end of a target itself."""

    all_special_ids = (START, END)

    def __call__(self, *, text_target: str, verbose: bool) -> dict[str, list[int]]:
        return {"input_ids": [START, 5, 6, END]}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [str(number) for number in ids]


def test_a_target_that_begins_with_the_start_token_loses_its_end_alone():
    config = SimpleNamespace(decoder_start_token_id=START, eos_token_id=END)
    config.get_text_config = lambda decoder: config
    module, tokenizer = SimpleNamespace(config=config), Tokenizer()

    def read(target):
        return decoder_ids(module, tokenizer, target, limit=9, most=9, name="x")

    assert read("two words") == [START, 5, 6]
    assert read([START, 5, 6, END]) == [START, 5, 6, END]  # ids that begin with it are what the decoder reads
    assert read([5, 6, END]) == [START, 5, 6]
