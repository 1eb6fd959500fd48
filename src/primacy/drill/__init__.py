"""Drills: real faults against a running cluster, and whether it kept what its times promise.

    catalogue ──► player ──► target (a lab, or a real cluster) ──► faults that end by themselves
                    │ reads events, signatures and lateness into a record
                    └──► judge (pure): findings beside the numbers of `primacy contract` ──► report: text, JSON, a page

docs/drills.md says what is done and what is judged. Whatever becomes of the process that runs a drill, no fault
outlasts its time: the lab ends it, or a small process beside the drill does.
"""
