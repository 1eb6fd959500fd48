"""The elections: one vocabulary (model, inputs, effects, messages, events, store) and a package per kind of strategy.

Everything here is pure: no clock, no socket, no disk, no logging, no thread. A strategy is told the time and what
happened, and answers with an ordered list of effects. Whoever performs them (the driver, or the simulator) performs
them in that order: `Persist` stands before the `Send` that relies on it.
"""
