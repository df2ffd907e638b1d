"""Run the command line with `python -m heatbath`, where its script is not on the path."""

from heatbath.cli import main

if __name__ == "__main__":
    main()
