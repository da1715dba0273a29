"""The stack on one machine: Envoy, a picker and N simulators as supervised processes.

A supervisor (`stack`) owns every process (`processes`), those of the simulators by way of `fleet`, and the three files
by which the parts learn of each other: Envoy's bootstrap, Envoy's endpoints, the picker's endpoints. `state` is the
folder in which other commands find it.
"""
