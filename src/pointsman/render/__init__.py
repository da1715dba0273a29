"""From a description to the documents that other programs read: Kubernetes objects, and Envoy's configuration.

Everything here is a pure function from frozen dataclasses to plain dictionaries. Nothing here opens a file, a
socket or a clock, so that the same renderer serves one machine, a cluster and a test.
"""
