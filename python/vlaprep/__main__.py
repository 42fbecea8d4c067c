"""``python -m vlaprep``."""

from vlaprep.cli import main

if __name__ == "__main__":
    main()
