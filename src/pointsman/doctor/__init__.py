"""Finding out why a pick is not honoured: facts are gathered once, checks judge them, a report tells.

`facts` is what was seen, `checks` says what follows from it, `report` says it to people and programs. Nothing here does
I/O: who has a stack in front of them gathers (`cli.doctor` for the one on this machine).
"""
