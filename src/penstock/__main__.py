"""The `penstock` command, and `python -m penstock`: Ctrl-C ends it without a stack trace from its first import on."""

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit."""
    try:
        # Imported here: on a busy machine, that takes long enough for a Ctrl-C.
        from penstock.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
