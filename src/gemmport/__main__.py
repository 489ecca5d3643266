"""`python -m gemmport`: the command, where its script is not on the PATH."""

from gemmport.cli import main

if __name__ == "__main__":
    main()
