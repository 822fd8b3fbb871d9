"""The file that answers are kept in: a table of nodes and classes that ``gckm fit --labels`` reads."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch_gckm.errors import InvalidInputError
from torch_gckm.files import PathLike, check_writable, write_atomically

Answers = dict[int, str | None]  # The class of a node; None: it was skipped.
_NODE = ("node", "id", "name", "key", "index")  # What readers of tables take for a heading.


class LabelFile:
    """A CSV file of nodes and their classes, the latest answer last; a skipped node has a blank class.

    It is written as a whole after every answer: a process that is killed leaves the file before or after the answer.
    A file that something else wrote or changed is not overwritten.

    Args:
        path: The file.
        names: The names of the nodes.
    """

    def __init__(self, path: PathLike, names: Sequence[str]) -> None:
        self.path, self.names = Path(path), names
        self._places = {name: place for place, name in enumerate(names)}
        if len(self._places) < len(names):
            twice = next(name for place, name in enumerate(names) if self._places[name] != place)
            raise InvalidInputError(f"two nodes are called '{twice}'; labels need nodes with different names")
        wrong = next((name for name in names if not name or name != name.strip()), None)
        if wrong is not None:
            raise InvalidInputError(f"a node is called {wrong!r}; a table needs names without blanks around them")
        self.heading = [next((word for word in _NODE if word not in self._places), ""), "class"]
        self._last: bytes | None = None  # What the file is known to hold.
        check_writable(self.path)

    def read(self) -> Answers:
        """The answers in the file, in their order; none if there is no file yet."""
        if not self.path.exists():
            return {}
        content = self.path.read_bytes()
        try:
            lines = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))
        except (UnicodeDecodeError, csv.Error) as error:
            raise InvalidInputError(f"{self.path} is not a table in UTF-8: {error}") from error
        if content and (not lines or lines[0] != self.heading):
            raise InvalidInputError(
                f"{self.path} does not begin with '{','.join(self.heading)}', so it is not a file of 'gckm label'; it "
                "is left as it is: name another file with --output"
            )
        answers: Answers = {}
        for number, cells in enumerate(lines[1:], start=2):
            if not cells:
                continue
            if len(cells) != 2 or cells[0] not in self._places:
                shown = ", ".join(cells)
                raise InvalidInputError(f"{self.path}, line {number}: not a known node and its class: {shown}")
            place = self._places[cells[0]]
            if place in answers:
                raise InvalidInputError(f"{self.path}, line {number}: '{cells[0]}' occurs twice")
            answers[place] = cells[1] or None
        self._last = content
        return answers

    def write(self, answers: Mapping[int, str | None]) -> None:
        """Replace the file, unless it has changed since it was last read or written here."""
        found = self.path.read_bytes() if self.path.exists() else None
        if found != self._last:
            what = "was changed by another program" if found is not None else "is gone"
            raise InvalidInputError(
                f"{self.path} {what} since it was last saved; it is left as it is: stop and start again to read it"
            )
        text = io.StringIO(newline="")
        rows = ([self.names[place], answer or ""] for place, answer in answers.items())
        csv.writer(text, lineterminator="\n").writerows([self.heading, *rows])
        content = text.getvalue().encode()
        write_atomically(self.path, lambda file: file.write(content))
        self._last = content


def checked_class(name: str) -> str:
    """A name that a table of labels can hold; raises if it would be read as no class, or as several cells."""
    name = name.strip()
    if not name:
        raise InvalidInputError("a class needs a name")
    if not name.isprintable():
        raise InvalidInputError(f"a class cannot be called {name!r}; use letters, digits and signs that can be printed")
    try:
        is_blank = name.lower() == "nan" or float(name) == -1
    except ValueError:
        is_blank = False
    if is_blank:
        raise InvalidInputError(f"a class cannot be called '{name}', which means that there is none")
    return name
