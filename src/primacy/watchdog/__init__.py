"""The guarded process: the pure machine that decides, the guard process that holds the child, the port between them."""
