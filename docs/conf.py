"""How Sphinx makes the site of the pages in docs/ and at the top of the repository (`make site`).

Sphinx, since it reads pages where they are: README, ARCHITECTURE and docs/ link to each other by paths that are right
in the repository, while MkDocs wants one folder of pages. What it makes needs neither a server nor a network, search
included.
"""

import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from sphinx.application import Sphinx
from sphinx.util.osutil import relative_uri

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

project = html_title = "xccl_emu"
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "corpus/*/*.md"]
exclude_patterns = ["README.md", "docs/conf.py", "docs/site/*"]
extensions = ["myst_nb", "sphinx.ext.autodoc"]
html_theme = "furo"
html_static_path, html_css_files, html_extra_path = ["site/style.css"], ["style.css"], ["site/index.html"]
html_copy_source = html_show_sphinx = html_show_copyright = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_url_schemes = ["http", "https", "source"]
nb_execution_mode = "off"  # tests execute notebooks, and hold their outputs
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"

_LINK = re.compile(r"\]\(([\w./-]+\.(?:py|h|c|cpp|toml))(?:#L(\d+)[-L\d]*)?\)")
_OMITTED = {
    'role="heading">': 'role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Pages">',
    '<aside class="toc-drawer">': '<aside class="toc-drawer" aria-label="On this page">',
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
}
_ITEM = re.compile(r"( *)(\w+(?:, \w+)*): (?=\S)")


def front_page(app: Sphinx, docname: str, text: list[str]) -> None:
    """The site begins with README, whose links are then seen from docs/."""
    if docname == root_doc:
        readme = re.sub(r"\]\((?=[A-Z])", "](../", (ROOT / "README.md").read_text("utf-8"))
        text[0] = readme.replace("](docs/", "](") + text[0]


def source_links(app: Sphinx, docname: str, text: list[str]) -> None:
    """Links to files of source become links to pages of the site, which have their lines as anchors."""

    def link(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(docname), found[1]))
        return f"](source:{path}.html{f'#L-{found[2]}' if found[2] else ''})"

    text[0] = _LINK.sub(link, text[0])


def resolved(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Their addresses as seen from the page, and the paths kept for `source_pages`."""
    for node in doctree.findall(nodes.reference):
        uri = node.get("refuri", "")
        if uri.startswith("source:"):
            page, hash_sign, line = uri.removeprefix("source:").partition("#")
            app.config.sources.add(page.removesuffix(".html"))
            node["refuri"] = relative_uri(app.builder.get_target_uri(docname), page) + hash_sign + line


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each file that is linked."""
    form = HtmlFormatter(lineanchors="L", linenos="inline")
    for path in sorted(app.config.sources):
        code = (ROOT / path).read_text("utf-8")
        body = f"<h1>{path}</h1>" + highlight(code, get_lexer_for_filename(path, code), form)
        yield path, {"title": path, "body": body}, "page.html"


def accessible(app: Sphinx, error: Exception | None) -> None:
    """Add what readers of screens and keyboards need and the theme omits: levels, names, and boxes that scroll."""
    for path in () if error else Path(app.outdir).rglob("*.html"):
        text = path.read_text("utf-8")
        for written, needed in _OMITTED.items():
            text = text.replace(written, needed)
        path.write_text(text, "utf-8")


def lists(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Lines ``name: text`` of docstrings, with what is indented below, become lists; a lone asterisk is a sign."""
    plain = "\n".join(lines).replace("Parameters\n----------\n", "").replace(" *= ", r" \*= ").split("\n")
    lines[:], inside = [], -1
    for line, below in zip(plain, [*plain[1:], ""], strict=True):
        item, indent = _ITEM.match(line), len(line) - len(line.lstrip())
        if item and (not below or _ITEM.match(below) or below.startswith(item[1] + " ")):
            lines += ["", f"* `{item[2]}`: {line[item.end() :]}"]
            inside = indent
        elif line and indent > inside >= 0:
            lines.append("  " + line.lstrip())
        else:
            lines += ([""] if inside >= 0 else []) + [line]
            inside = -1


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_config_value("sources", set(), "")
    app.connect("source-read", front_page)
    app.connect("source-read", source_links)
    app.connect("doctree-resolved", resolved)
    app.connect("html-collect-pages", source_pages)
    app.connect("autodoc-process-docstring", lists)
    app.connect("build-finished", accessible)
