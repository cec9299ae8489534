"""The corrected communication terms are what ranks must send, no more and no less."""

from dataclasses import replace

import numpy as np
import pytest

from tests.plan.moves import Layer
from tests.plan.support import cluster, model
from xccl_emu.papers.plan.costs import PlanSetting, communication
from xccl_emu.papers.plan.grammar import LayerStrategy, StrategyBlock

DEGREES = [
    (tensor_a, ranks // tensor_a, tensor_e, ranks // tensor_e)
    for ranks in (1, 2, 4, 8, 16)
    for tensor_a in (1, 2, 4, 8, 16)
    for tensor_e in (1, 2, 4, 8, 16)
    if ranks % tensor_a == 0 and ranks % tensor_e == 0 and ranks // tensor_e > 1
]


@pytest.mark.parametrize("degrees", DEGREES, ids=str)
def test_terms_are_what_every_rank_sends(degrees: tuple[int, int, int, int]) -> None:
    """All ranks end with the right outputs, and have sent in each step as many bytes as the term says."""
    tensor_a, dp, tensor_e, ep = degrees
    layer = Layer(*degrees, tokens=16 * dp, experts=16, top_k=4, hidden=32)
    outputs, wanted = layer.run(), layer.wanted()
    for rank in range(layer.ranks):
        own = rank // tensor_a * 16
        np.testing.assert_array_equal(outputs[rank], wanted[own : own + 16])
    setting = PlanSetting(model(hidden=32, routed=16, top_k=4), cluster(layer.ranks), layer.tokens, dropping=True)
    strategy = LayerStrategy(StrategyBlock(tensor_a, dp), StrategyBlock(tensor_e, ep))
    of = {term.name: term.seconds for term in communication(strategy, replace(setting, overlapped=False), 1)}
    for name in ("A2A dispatch", "expert AG", "expert RS", "A2A combine", "output RS", "output AG"):
        sent = {layer.sent[name][rank] * 2 for rank in range(layer.ranks)}
        assert sent == {round(of[name] * 1e9)}, name
