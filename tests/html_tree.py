"""Reading HTML back as a browser would, with the standard library's parser."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

VOID = {"meta", "input"}


class Tag:
    """An element with its attributes, children and text."""

    def __init__(self, name: str, attributes: dict[str, str | None]) -> None:
        self.name = name
        self.attributes = attributes
        self.children: list[Tag | str] = []

    @property
    def classes(self) -> list[str]:
        return (self.attributes.get("class") or "").split()

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, name: str | None = None, class_: str | None = None) -> list[Tag]:
        """Every element below, in the order of the file."""
        return [tag for tag in self._walk() if name in (None, tag.name) and (class_ is None or class_ in tag.classes)]

    def one(self, name: str | None = None, class_: str | None = None) -> Tag:
        (found,) = self.all(name, class_)
        return found

    def by_id(self, id_: str) -> Tag:
        (found,) = [tag for tag in self._walk() if tag.attributes.get("id") == id_]
        return found

    def _walk(self) -> Iterator[Tag]:
        for child in self.children:
            if isinstance(child, Tag):
                yield child
                yield from child._walk()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Tag("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        new = Tag(tag, dict(attrs))
        self.open[-1].children.append(new)
        if tag not in VOID:
            self.open.append(new)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(html: str) -> Tag:
    """The root of what ``html`` holds. Fails where an element is not closed."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    (root,) = reader.open
    return root
