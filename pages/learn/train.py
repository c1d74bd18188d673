"""How do random weights become heads that mean something, and how many heads does it take?"""

from pages._kit import views

match views.choose("train_view", ("training", "heads")):
    case "heads":
        from pages.learn._train import head_counts

        head_counts.page()
    case _:
        from pages.learn._train import training

        training.page()
