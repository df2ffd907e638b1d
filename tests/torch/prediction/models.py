"""Models to take samples of."""

import tracemalloc

import torch


def model_of(value):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(value)
    return model


class Extra(torch.nn.Linear):
    """A layer with extra state, and with buffers that its forward changes."""

    def __init__(self, extra=None):
        super().__init__(2, 2)
        self.extra = extra
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)
        self.register_buffer("replaced", torch.zeros(1), persistent=False)

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state

    def forward(self, x):
        self.calls += 1
        self.scratch += 1
        self.replaced = self.replaced + 1
        return super().forward(x)


def peak(call):
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
