"""The elections: one vocabulary (model, inputs, effects, messages, guarantees) and one strategy per file.

Everything here is pure: no clock, no socket, no disk, no logging, no thread. A strategy is told the time and what
happened, and answers with an ordered list of effects. Whoever performs them (the driver, or the simulator) performs
them in that order: `Persist` stands before the `Send` that relies on it.
"""
