"""Everything that the doctor asks of a cluster: the API server, the gateway's Envoy, the picker's ports, and the way
through.

A part that does not answer leaves a gap with its reason, never an error: that is what the checks are about.
"""
