"""primacy: of many nodes, exactly one does it.

`import primacy` loads nothing heavy; each part is imported by who needs it. The machines stand in `primacy.election`,
the one configuration file in `primacy.settings`, the simulator in `primacy.sim`.
"""

__version__ = "0.1.0"
