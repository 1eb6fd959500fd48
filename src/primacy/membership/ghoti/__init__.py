"""Where real nodes of Ghoti need more than one of ours: what they echo, and that two of them lead. Pure."""
