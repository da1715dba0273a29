"""How often the programs of a cluster of tests collect garbage: seldom.

A fifth of an API server's time went into that; a gigabyte is less scarce here than a core.
"""

SELDOM = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}
