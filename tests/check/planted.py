"""All planted bugs, by the protocol that they are in: each module has ``KNOWN`` ones, and its ``OWN``."""

from . import (
    mutants_a2e,
    mutants_collect,
    mutants_collectives,
    mutants_deepep,
    mutants_fused,
    mutants_kv,
    mutants_kv_retry,
    mutants_memory_pool,
    mutants_moe,
    mutants_mtp,
    mutants_own,
    mutants_probe,
    mutants_reconfigure,
    mutants_ring,
    mutants_rollback,
    mutants_streams,
)

MODULES = {
    "send and receive": mutants_ring,
    "dispatch and combine": mutants_moe,
    "fused dispatch and combine": mutants_fused,
    "low-latency dispatch and combine": mutants_deepep,
    "A2E and E2A": mutants_a2e,
    "collectives": mutants_collectives,
    "transfer of KV caches": mutants_kv,
    "KV caches tried again": mutants_kv_retry,
    "link probing": mutants_probe,
    "load of experts": mutants_collect,
    "reconfiguration of experts": mutants_reconfigure,
    "memory pool": mutants_memory_pool,
    "rollback of an iteration": mutants_rollback,
    "two streams on a die": mutants_streams,
    "multi-token prediction": mutants_mtp,
    "small protocols": mutants_own,
}
