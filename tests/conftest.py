"""For all tests: one thread. The tensors are small, and two threads on busy cores wait for each other."""

import torch

torch.set_num_threads(1)
