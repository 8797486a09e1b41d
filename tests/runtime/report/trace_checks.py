"""The form of a trace: each event, and that slices of a row lie in each other or apart."""

from __future__ import annotations


def checked(seen: dict) -> list[dict]:
    """Its events, after a look at the form of each."""
    assert set(seen) == {"traceEvents", "displayTimeUnit", "otherData"}
    rows: dict = {}
    for event in seen["traceEvents"]:
        assert type(event["name"]) is str and type(event["pid"]) is type(event["tid"]) is int
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and event["args"]["name"]
            continue
        assert event["ph"] in ("X", "i") and event["ts"] >= 0 and event["cat"]
        if event["ph"] == "i":
            assert event["s"] == "t"
        else:
            assert event["dur"] >= 0
            rows.setdefault((event["pid"], event["tid"]), []).append(event)
    for slices in rows.values():
        for one in slices:
            begin, end = one["ts"], one["ts"] + one["dur"]
            for other in slices:
                first, last = other["ts"], other["ts"] + other["dur"]
                apart = last <= begin + 1e-3 or first >= end - 1e-3
                within = (first >= begin and last <= end + 1e-3) or (
                    begin >= first and end <= last + 1e-3
                )
                assert apart or within, (one, other)
    return seen["traceEvents"]
