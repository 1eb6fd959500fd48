"""The commands, and nothing but commands: what they do stands in the other rooms. Nothing imports this one."""
