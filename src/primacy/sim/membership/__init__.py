"""The membership machine with the real machines of bully and ring, in a world drawn from one seed."""
