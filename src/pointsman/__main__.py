"""`python -m pointsman`: the command line, for the processes that we start ourselves."""

from pointsman.cli import main

main()
