"""How does a sentence become the output? Views: step by step, decoding, the order of words, two layers."""

from pages._kit import views

match views.choose("steps_view", ("steps", "decode", "order", "layers")):
    case "decode":
        from pages.understand._steps import decode

        decode.page()
    case "order":
        from pages.understand._steps import word_order

        word_order.page()
    case "layers":
        from pages.understand._steps import two_layers

        two_layers.page()
    case _:
        from pages.understand._steps import step_by_step

        step_by_step.page()
