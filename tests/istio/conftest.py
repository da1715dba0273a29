"""The tests in `inside/` run in a network namespace of their own; outside of it they are not collected.

Pod addresses are local there, so kwok's Pods can be posed by processes, and fixed ports disturb nobody.
"""

import os

INSIDE = "POINTSMAN_INSIDE_NETWORK_NAMESPACE"
collect_ignore = [] if os.environ.get(INSIDE) else ["inside"]
