"""Text to words, each with its place in the file: as a POSIX shell cuts it, and as Compose does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Placed:
    """Text whose characters stand somewhere in a file: ``at[i]`` is the file offset of ``text[i]``. ``exact`` is false
    where that is only known roughly (escapes in a YAML scalar): then nothing there may be edited."""

    text: str
    at: Sequence[int]
    exact: bool = True

    @staticmethod
    def whole(text: str) -> Placed:
        """A file's text, which stands where it stands."""
        return Placed(text, range(len(text)))


@dataclass(frozen=True, slots=True)
class Word:
    """One argument. ``start`` and ``end`` are file offsets, quotes included; -1 where it comes from no file. ``at``
    holds the offset of each character. ``variable`` is a ``$`` expansion, as written, that a shell would split."""

    text: str
    start: int = -1
    end: int = -1
    at: tuple[int, ...] = ()
    exact: bool = True
    variable: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command. ``start`` and ``end`` are indexes into the text (not the file): where its first word begins,
    and where its last word ends."""

    words: tuple[Word, ...]
    start: int
    end: int


@dataclass(slots=True)
class _Building:
    """The word being read."""

    chars: list[str] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    first: int = -1
    last: int = -1
    variable: str = ""

    def add(self, char: str, index: int) -> None:
        self.chars.append(char)
        self.at.append(index)
        self.touch(index)

    def touch(self, index: int) -> None:
        self.first = index if self.first < 0 else self.first
        self.last = index

    def take(self, source: Placed) -> Word:
        word = Word(
            "".join(self.chars),
            source.at[self.first],
            source.at[self.last] + 1,
            tuple(source.at[index] for index in self.at),
            source.exact,
            self.variable,
        )
        self.chars, self.at, self.first, self.last, self.variable = [], [], -1, -1, ""
        return word


_NAME = re.compile(r"\$(?:\w+|[@*#?$!-])")


def shell_commands(source: Placed) -> list[Command]:
    """The simple commands of a script as a POSIX shell cuts them (XCU 2.3): continued lines joined, comments dropped,
    split at newlines and control operators. Redirections and here-documents belong to no command's words."""
    return list(_Shell(source).commands())


class _Shell:
    def __init__(self, source: Placed) -> None:
        self.source = source
        self.text = source.text
        self.index = 0
        self.heredocs: list[str] = []

    def commands(self) -> Iterator[Command]:
        words: list[Word] = []
        start = end = -1
        while self.index < len(self.text):
            char = self.text[self.index]
            if self.text.startswith("\\\n", self.index):
                self.index += 2
            elif char in " \t\r":
                self.index += 1
            elif char == "#":
                self._skip_line()
            elif char in "\n;&|()":
                if words:
                    yield Command(tuple(words), start, end)
                words, start = [], -1
                self.index += 1
                if char == "\n":
                    self._skip_heredocs()
            elif char in "<>":
                self._redirection()
            else:
                start = self.index if start < 0 else start
                word = self._word()
                if not (word.text.isdigit() and self.text[self.index : self.index + 1] in ("<", ">")):
                    words.append(word)
                    end = self.index
        if words:
            yield Command(tuple(words), start, end)

    def _word(self) -> Word:
        word = _Building()
        while self.index < len(self.text):
            char = self.text[self.index]
            if self.text.startswith("\\\n", self.index):
                self.index += 2
            elif char in " \t\r\n;&|()<>":
                break
            elif char == "\\":
                word.touch(self.index)
                self.index = min(self.index + 1, len(self.text) - 1)
                word.add(self.text[self.index], self.index)
                self.index += 1
            elif char == "'":
                self._quoted(word, "'")
            elif char == '"':
                self._quoted(word, '"')
            elif char in "$`":
                begin = self.index
                expansion = self._expansion()
                word.variable = word.variable or expansion
                for offset, each in enumerate(expansion):
                    word.add(each, begin + offset)
            else:
                word.add(char, self.index)
                self.index += 1
        return word.take(self.source)

    def _quoted(self, word: _Building, quote: str) -> None:
        word.touch(self.index)
        self.index += 1
        while self.index < len(self.text) and self.text[self.index] != quote:
            if quote == '"' and self.text.startswith("\\\n", self.index):
                self.index += 2
                continue
            if quote == '"' and self.text[self.index] == "\\" and self.text[self.index + 1 : self.index + 2] in '"\\$`':
                self.index += 1
            if self.index < len(self.text):
                word.add(self.text[self.index], self.index)
            self.index += 1
        if self.index < len(self.text):
            word.touch(self.index)
        self.index += 1

    def _expansion(self) -> str:
        """The expansion that starts here, as written, and step over it."""
        start = self.index
        closing = {"${": "}", "$(": ")"}.get(self.text[start : start + 2])
        if closing:
            depth, self.index = 1, start + 2
            opening = self.text[start + 1]
            while self.index < len(self.text) and depth:
                depth += {opening: 1, closing: -1}.get(self.text[self.index], 0)
                self.index += 1
        elif self.text[start] == "`":
            end = self.text.find("`", start + 1)
            self.index = len(self.text) if end < 0 else end + 1
        else:
            name = _NAME.match(self.text, start)
            self.index = name.end() if name else start + 1
        return self.text[start : self.index]

    def _redirection(self) -> None:
        operator = re.compile(r"<<<|<<-?|>>|<>|>\||[<>]&?").match(self.text, self.index)
        assert operator is not None
        self.index = operator.end()
        while self.index < len(self.text) and self.text[self.index] in " \t":
            self.index += 1
        if self.index < len(self.text) and self.text[self.index] not in "\n;|()<>&":
            target = self._word()
            if operator.group() in ("<<", "<<-"):
                self.heredocs.append(target.text)

    def _skip_line(self) -> None:
        end = self.text.find("\n", self.index)
        self.index = len(self.text) if end < 0 else end

    def _skip_heredocs(self) -> None:
        for marker in self.heredocs:
            while self.index < len(self.text):
                line_end = self.text.find("\n", self.index)
                line_end = len(self.text) if line_end < 0 else line_end
                line = self.text[self.index : line_end]
                self.index = min(line_end + 1, len(self.text))
                if line.strip("\t") == marker:
                    break
        self.heredocs = []


@dataclass(frozen=True, slots=True)
class ComposeWords:
    """What Compose makes of a command string. ``stopped`` is the index of the operator at which it stopped reading
    (everything from there on is dropped), -1 where it read all. ``broken`` tells what it refuses."""

    words: tuple[Word, ...]
    stopped: int = -1
    broken: str = ""


def compose_words(source: Placed) -> ComposeWords:
    """A command string as Compose splits it: quotes and backslashes, no comments, no variables of the container, and
    nothing after an unquoted ``;``, ``&``, ``|``, ``<`` or ``>`` (seen with Compose 2.40). A backslash keeps the
    character behind it, a newline too. ``$$`` is one ``$``; a variable of Compose's own is kept as written."""
    words: list[Word] = []
    word = _Building()
    open_quotes: set[str] = set()
    escaped = False
    for char, begin, index, special in _interpolated(source.text):
        if len(char) > 1:
            word.touch(begin)
        if escaped or not special or (char == "\\" and "'" in open_quotes):
            for each in char:
                word.add(each, index)
            escaped = False
        elif char == "\\":
            word.touch(index)
            escaped = True
        elif char in " \t\r\n":
            if open_quotes:
                word.add(char, index)
            elif word.first >= 0:
                words.append(word.take(source))
        elif char in "\"'" and not open_quotes & ({"'", '"', "("} - {char}):
            open_quotes ^= {char}
            word.touch(index)
        elif char == "`" and not open_quotes & {"'", '"', "("}:
            open_quotes ^= {char}
            word.add(char, index)
        elif char in "()" and not open_quotes & {"'", '"', "`"}:
            if char == "(" and ("(" in open_quotes or not "".join(word.chars).endswith("$")):
                return ComposeWords(tuple(words), broken="a parenthesis")
            open_quotes ^= {"("}
            word.add(char, index)
        elif char in ";&|<>" and not open_quotes:
            if word.first >= 0 and not (char == ">" and word.chars and word.chars[0].isdigit()):
                words.append(word.take(source))
            return ComposeWords(tuple(words), stopped=index)
        else:
            word.add(char, index)
    if open_quotes or escaped:
        return ComposeWords(tuple(words), broken="a quote or a backslash that is left open")
    if word.first >= 0:
        words.append(word.take(source))
    return ComposeWords(tuple(words))


def _interpolated(text: str) -> Iterator[tuple[str, int, int, bool]]:
    """The characters with first and last index, ``$$`` as one ``$``; an own variable of Compose comes as one piece.
    The flag is false for what can be neither quote nor separator."""
    index = 0
    while index < len(text):
        end = index + 1
        piece = text[index]
        if text.startswith("$$", index):
            end = index + 2
        elif text.startswith("${", index):
            close = text.find("}", index)
            end = len(text) if close < 0 else close + 1
            piece = text[index:end]
        elif name := _NAME.match(text, index):
            end = name.end()
            piece = name.group()
        yield piece, index, end - 1, piece[0] != "$"
        index = end
