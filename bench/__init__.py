"""Speed and traffic, as ratios and medians of interleaved rounds: a number of seconds says more about the machine."""
