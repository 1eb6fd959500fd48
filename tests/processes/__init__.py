"""Real processes, signals, sockets and servers."""
