"""Which experts each token chooses: from measured loads, from recorded choices, or generated."""

from xccl_emu.routing.batches import Routing, deal_routing, draw_routing
from xccl_emu.routing.files import ExpertLoads, RecordedChoices, load_expert_loads, load_topk_jsonl, open_routing
from xccl_emu.routing.placement import (
    Placement,
    Redundancy,
    assign_replicas,
    choose_replicas,
    place_choices,
    place_experts,
)
from xccl_emu.routing.sampling import draw_gate_weights, draw_topk, inclusion_probabilities, skewed_loads

__all__ = [
    "ExpertLoads", "Placement", "RecordedChoices", "Redundancy", "Routing", "assign_replicas", "choose_replicas",
    "deal_routing", "draw_gate_weights", "draw_routing", "draw_topk", "inclusion_probabilities",
    "load_expert_loads", "load_topk_jsonl", "open_routing", "place_choices", "place_experts", "skewed_loads",
]  # fmt: skip
