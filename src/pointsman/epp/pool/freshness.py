"""How far a scrape is believed as it ages: fully at first, then less and less, and our own counts take its place.

llm-d halts or calls everything saturated when metrics are old. We know what we have sent and what has ended, so an
endpoint that has stopped answering scrapes is ranked by that instead. Nothing steps: what scorers see moves from the
one to the other in a straight line, so a late page does not make traffic jump. Pure; whoever asks knows the time.
"""

_FRESH_SHARE = 0.1  # of the staleness threshold: two seconds' threshold believes a page for 200 ms without question


def trust(age: float, *, threshold: float) -> float:
    """Return how far figures of this age count, from 1 to 0; an infinite age counts nothing."""
    fresh = threshold * _FRESH_SHARE
    if age <= fresh:
        return 1.0
    return (threshold - age) / (threshold - fresh) if age < threshold else 0.0


def blend(scraped: float, *, since: int, own: int, trust: float) -> float:
    """Return the load to rank by: the scrape with our picks and ends since, mixed with our own count by trust."""
    if trust >= 1.0:
        return max(0, scraped + since)
    if trust <= 0.0:
        return own
    return trust * max(0, scraped + since) + (1.0 - trust) * own
