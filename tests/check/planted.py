"""All planted bugs, by the protocol that they are in: each module has ``KNOWN`` ones, and its ``OWN``."""

from . import (
    mutants_a2e,
    mutants_collectives,
    mutants_deepep,
    mutants_fused,
    mutants_kv,
    mutants_membership,
    mutants_memory_pool,
    mutants_moe,
    mutants_own,
    mutants_reconfigure,
    mutants_ring,
    mutants_rollback,
)

MODULES = {
    "send and receive": mutants_ring,
    "dispatch and combine": mutants_moe,
    "fused dispatch and combine": mutants_fused,
    "low-latency dispatch and combine": mutants_deepep,
    "A2E and E2A": mutants_a2e,
    "collectives": mutants_collectives,
    "transfer of KV caches": mutants_kv,
    "reconfiguration of experts": mutants_reconfigure,
    "memory pool": mutants_memory_pool,
    "rollback of an iteration": mutants_rollback,
    "going on with fewer ranks": mutants_membership,
    "small protocols": mutants_own,
}
