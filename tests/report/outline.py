"""A page taken apart: is it well formed, and what is in it?"""

from html.parser import HTMLParser

SHAPES = {"rect", "line", "circle", "path", "polyline", "polygon"}
VOID = {"meta", "col", "br", "img", "link", "input"} | SHAPES


class Outline(HTMLParser):
    """Checks nesting and collects tags, ids and links."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.ids, self.links, self.text = [], [], [], [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append((tag, found))
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[name] for name in ("href", "src") if name in found]
        if tag not in VOID or tag == "rect":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
