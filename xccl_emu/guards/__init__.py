"""What guards the checker: nobody needs it to prove a protocol.

`campaign` draws small programs on which all judges must agree.  What guards it outside of the package is
`tools/judge.py` (plants mistakes in the search that a campaign must find), `tools/record.py` (what every
shipped protocol does, to the byte), `tools/soundness.py` (what each reduction takes for granted) and `tests/model`
(a machine written a second time).
"""
