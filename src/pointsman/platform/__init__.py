"""Operators on clusters without OLM: from bundles to charts, from charts to what runs. Shell over a pure core.

    spec ─ folder ─ charts ─ steps ─┐                     pure: what is wanted, in which order
    journal ─ releases ─ observed ──┼─ deploy, undeploy ─ cluster, helm ─▶ API server
    providers ─ webhooks ─ preflight┘                     what is there, what it means

What we put on a cluster carries our label, and nothing without it is written over or deleted (decision 23).
"""
