"""A real cluster on this machine: agents as real processes, which can be killed, frozen and cut off from each other.

    with Lab("folder", nodes=3, profile="lab", command=["sleep", "60"]) as lab:
        lab.start()
        leader = lab.until_acting()
        lab.kill(leader, whole=True)
        lab.until_acting(but=leader)

For the demo, for drills and for tests. Nothing of primacy imports it but the commands, and it changes nothing outside
its own folder. Whatever happens to the process that made a lab, its nodes do not outlive it.
"""
