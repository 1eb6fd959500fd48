"""The other half of a fencing token: what the protected resource checks.

A leadership's token is larger than that of every leadership before it. A resource that remembers the largest token it
has seen, and refuses smaller ones, is safe from a holder that was frozen and does not know yet that it was replaced.
Nothing else is (U1).

    fence.sql    a guard inside of the user's own transaction
    fence.http   a gate before an ASGI or WSGI application: header `Primacy-Token`, 412 for a stale one
    fence.file   a file that is appended to or replaced, and a durable mark for anything else

All raise `StaleToken`. Tokens of different elections must not meet at one mark: each election has its own name there.
"""
