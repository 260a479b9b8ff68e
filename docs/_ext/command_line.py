"""The directive ``command-line``: what every command of ``scalefair`` says of itself."""

import click
from docutils import nodes
from sphinx.util.docutils import SphinxDirective


def helps():
    """Return {command: text of its --help}; the group itself comes first, as ``scalefair``."""
    from scalefair.cli import main

    root = click.Context(main, info_name="scalefair", max_content_width=88, **main.context_settings)
    found = {"scalefair": root.get_help()}
    for name in main.list_commands(root):
        command = main.get_command(root, name)
        context = click.Context(command, info_name=name, parent=root, max_content_width=88)
        found[f"scalefair {name}"] = command.get_help(context)
    return found


class CommandLine(SphinxDirective):
    """One section per command."""

    def run(self):
        """Return the sections."""
        sections = []
        for name, text in helps().items():
            section = nodes.section(ids=[nodes.make_id(name)])
            section += nodes.title("", name)
            section += nodes.literal_block(text, text, language="text")
            sections.append(section)
        return sections


def setup(app):
    """Join the build."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True}
