"""What every implementation of a port owes, and what others rely on: wires, files, settings, commands."""
