"""`python -m antiphon` is the command line."""

from antiphon.cli.main import main

if __name__ == "__main__":
    main()
