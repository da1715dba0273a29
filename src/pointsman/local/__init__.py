"""The stack on one machine: Envoys, a picker and simulators as supervised processes.

`plan` says what shall run. It comes from a SimulatorDeployment, written by a person or made from flags (`standard`), by
way of the objects that a cluster would get (`objects`, with `envoys` for what differs here). A supervisor (`stack`)
makes one plan after another (`follow`) true: it owns every process (`processes`, by Deployment in `pods` and `fleet`),
the ports of Services (`relay`) and the files by which the parts learn of each other (`publisher`). `state` is the
folder in which other commands find it; `running` and `detached` are how they start it, wait for it, scale and stop it.
"""
