"""`python -m scalefair` is the command line."""

from scalefair.cli import main

if __name__ == "__main__":
    main()
