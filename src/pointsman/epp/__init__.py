"""The endpoint picker. A request walks core-ward once (stream → director → scheduler → profile → plugins) and back.

`server` is the shell, with `sources` that ask and watch: certificates, files, signals, model servers. The rest is
without I/O, and what carries it, HTTP/2 and gRPC, is in `pointsman.wire`.
"""
