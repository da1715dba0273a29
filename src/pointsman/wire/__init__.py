"""HTTP/2 and gRPC, server side, for our own servers: bytes → frames → streams → messages, and back.

`connection` is the protocol without a socket, `outbox` its sending half, `grpc` turns streams into calls, `listener`
has the sockets. Knows nothing of what the messages mean.
"""
