"""The endpoint picker. A request walks core-ward once (wire → grpc → stream → director → scheduler → plugins) and back.

`listener` and `server` are the shell: sockets, certificates, files, signals. Everything else is without I/O.
"""
