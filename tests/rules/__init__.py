"""Machines and pure parts, rule by rule: no process, no server, hardly a socket."""
