"""The body-based router: which pool a request is for, by the model that its body names.

A second server beside the picker, on the same wire and with the same scanner of bodies: once per gateway, before the
route is chosen, it turns what a body says into headers that routes can match. llm-d calls it payload processor.
"""
