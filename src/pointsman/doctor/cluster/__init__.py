"""What can be wrong between a client and a model server on a cluster. Pure: facts in, findings out.

    facts ─► path (who leads to whom) ─► chain: definitions, gateways, routes, pools, pickers, patches, asking, proof

Nothing here presumes that we made the objects: by hand, by charts or by an operator, they are judged alike.
"""
