"""Bugs in how the load of experts is collected."""

from xccl_emu.protocols.serving.collect import CollectCase

from .kinds import FAILED, LOCKED, RACE, TORN, WRONG
from .mutants import Of, bug

LONG = CollectCase(dies=1, intervals=3)
CORES = CollectCase(dies=1, cores=2, tokens=1, top_k=2)

of = Of("serving.collect")

ADD_COUNT = '        yield xl.add(k.counts + here + expert * 8, 1, step=1, sync="count")\n'
STORE_COUNT = """\
        seen = yield xl.load(k.counts + here + expert * 8, step=1)
        yield xl.store(k.counts + here + expert * 8, seen + 1, step=1, sync="count")
"""
TAKEN = '            yield xl.add(k.taken + die * k.pitch, 1, step=3, sync="report taken")\n'
REPORT_IN = '            yield xl.poll_ge(k.reported + die * FIELD_BYTES, i + 1, step=3, sync="report in")\n'

KNOWN = (
    bug("collect: the last report does not wait for the cores", LONG, WRONG, of.without("all counted"), quick=True),
    bug("collect: a report's number before the report", LONG, RACE | TORN | WRONG, of.without("report before number")),
    bug("collect: a core has counted before its counts are there", LONG, WRONG, of.without("counts before counted")),
    bug("collect: one place for all reports", LONG, RACE | TORN | WRONG | FAILED,
        of("place = k.reports + (i % 2 * k.dies", "place = k.reports + (i * 0 * k.dies"),
        of("k.reports + (interval % 2 * k.dies", "k.reports + (interval * 0 * k.dies")),
    bug("collect: counted by load and store", CORES, RACE | TORN | WRONG, of(ADD_COUNT, STORE_COUNT)),
)  # fmt: skip

OWN = (
    bug("collect: a report counts as read when it is in", LONG, RACE | TORN | WRONG | FAILED,
        of(TAKEN, "            pass\n"), of(REPORT_IN, REPORT_IN + TAKEN)),
    bug("collect: the executor waits for the report before", LONG, LOCKED,
        of("k.taken + here, i - 1, step=2", "k.taken + here, i + 1, step=2")),
)  # fmt: skip
