"""`python -m fleetui <command>`: the command line, for processes that start others."""

from fleetui.command_line import main

if __name__ == "__main__":
    main()
