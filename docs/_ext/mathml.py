"""Formulas as MathML, which browsers draw themselves: no script from elsewhere, also offline."""

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)


def _markup(node, *, as_block):
    try:
        formula = tex2mathml(node.astext().strip(), as_block=as_block)
        # A bar that may stretch sinks below the line where it has an exponent.
        for bar in ("<mo>|<", '<mo class="mathopen">|<'):
            formula = formula.replace(bar, '<mo stretchy="false">|<')
        return formula
    except MathError as error:
        logger.warning("a formula cannot be drawn: %s", error, location=node)
        return node.astext()


def visit_math(writer, node):
    """Write a formula within a line."""
    writer.body.append(_markup(node, as_block=False))
    raise nodes.SkipNode


def visit_math_block(writer, node):
    """Write a formula with lines of its own."""
    writer.body.append(f'<div class="formula">{_markup(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app):
    """Join the build."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True}
