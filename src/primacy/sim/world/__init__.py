"""The simulated world: true time, machines with clocks and disks, a network, a store, guards and the work itself."""
