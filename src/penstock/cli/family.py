"""How commands are built: one Typer app per family, plain help, and a block of examples."""

import typer

CONTEXT = {"help_option_names": ["-h", "--help"]}


def family(help: str, *example_lines: str) -> typer.Typer:
    """Return a family of commands; called without a command it shows its help."""
    return typer.Typer(
        help=help,
        epilog=examples(*example_lines),
        no_args_is_help=True,
        add_completion=False,
        # Plain help and errors: quick, and the same on a terminal, in a pipe and in the docs.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
    )


def examples(*lines: str) -> str:
    """Return the Examples block that ends a command's help."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
