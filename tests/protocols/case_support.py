"""What tests of protocols that are cases alone share: a run of one, and what is drawn for it."""

from hypothesis import strategies as st

from xccl_emu.protocol import Case

orders, policies = st.sampled_from(["sc", "fifo", "relaxed"]), st.sampled_from(["round-robin", "random"])


def wrong_bytes(case: Case, order: str = "sc", policy: str = "round-robin") -> dict[str, int]:
    """What a run leaves wrong."""
    trial = case.build(order)
    trial.pod.policy = policy
    trial.pod.run()
    return trial.wrong_bytes()
