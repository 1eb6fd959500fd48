"""Which node should lead which election, where one agent carries many: who campaigns first, and who hands over to whom.

Never part of safety (W1): all that comes out of here is an order in which nodes campaign, and ordinary transfers. Pure:
no clock, no socket, no disk. `model.py`: what a node knows; `assignment.py`: what is better; `plan.py`: the next move;
`order.py`: who campaigns first; `machine.py`: when.
"""
