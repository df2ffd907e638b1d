"""Steps of tensors anywhere in memory."""

import pytest

from tests.engine.test_simd import KINDS, array_at_page_end, pages
from tests.optional import optional

torch = optional("torch")
ht = optional("heatbath.torch")


@pages
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", [ht.Adam, ht.SGD, lambda p, h: ht.Langevin(p, h, 1.0, 0.1)])
def test_a_step_of_a_tensor_touches_no_memory_beyond_it(kind, optimizer):
    for count in (1, 7, 8, 15, 16, 17, 255, 257):
        theta, gradient = (torch.from_numpy(array_at_page_end(count, kind)) for _ in range(2))
        gradient[:] = 1
        parameter = torch.nn.Parameter(theta)
        parameter.grad = gradient
        assert parameter.data_ptr() == theta.data_ptr()
        chosen = optimizer([parameter], 0.5)
        chosen.step()
        chosen.step()
        assert (parameter != 0).all()
