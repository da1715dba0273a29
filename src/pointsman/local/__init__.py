"""The stack on one machine: Envoys, a picker and simulators as supervised processes.

`plan` says what shall run; it comes from flags (`programs.standard`) or from the objects that a cluster would get
(`objects`, with `flags` and `envoys` for what is different here). A supervisor (`stack`) makes one plan after another
(`follow`) true: it owns every process (`processes`, by Deployment in `pods` and `fleet`), the ports of Services
(`relay`) and the files by which the parts learn of each other (`publisher`). `state` is the folder in which other
commands find it.
"""
