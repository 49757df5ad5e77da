"""Just enough of the POSIX shell to read start scripts: split into simple commands, never run.

What cannot be read for certain (a condition, a command substitution) is kept apart rather than guessed: a command says
how many conditions stand around it, and an expansion whose value only running would tell is None.

Source of the grammar: POSIX.1-2017, Shell Command Language; and from bash ``[[``, ``((``, ``function``, ``$'..'``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9]+)(?:(:?[-=+?])(.*))?", re.DOTALL)
_OPENERS = {"if": "fi", "while": "done", "until": "done", "{": "}"}
_OPERATORS = (";;&", ";;", ";&", "&&", "||", "|&", ";", "&", "|", "(", ")", "\n")
_MAX_DEPTH = 50
_BRACES = re.compile(r"\{[^{}]*(,|\.\.)[^{}]*\}")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)", re.DOTALL)
# Variables that shells (HOSTNAME, TERM: engines) set by themselves. Source: bash(1), "Shell Variables".
_OWN_NAMES = """
    DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD HOSTNAME HOSTTYPE IFS LINENO MACHTYPE OLDPWD
    OPTARG OPTIND OSTYPE PIPESTATUS PPID RANDOM SECONDS SHELL SHELLOPTS SHLVL SRANDOM TERM UID _
"""
_OWN = frozenset(_OWN_NAMES.split())


class NotPlain(Exception):  # noqa: N818 - the sentence it makes is the point
    """The script cannot be followed by reading; the text says why, with the line."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__(f"line {line}: {why}")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word. ``kind`` is ``text``; ``var`` (``value`` its name, ``how`` and ``other`` the ``:-`` and
    default of ``${x:-default}``); ``args`` (``$@``, ``$*``); ``command`` (``value`` the text of a command
    substitution); or ``opaque``: an expansion that reading does not tell."""

    kind: str
    value: str = ""
    quoted: bool = False
    how: str = ""
    other: tuple[Part, ...] = ()


Word = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One simple command. ``joined`` is the operator before it, ``depth`` how many conditions, loops or groups stand
    around it, ``function`` the function in whose body it stands."""

    line: int
    words: tuple[Word, ...]
    joined: str
    depth: int
    function: str = ""

    @property
    def name(self) -> str:
        """The command's name where it is plain text, else empty."""
        return plain(self.words[0]) or ""


def plain(word: Word) -> str | None:
    """The word's text when no expansion stands in it, else None."""
    return "".join(part.value for part in word) if all(part.kind == "text" for part in word) else None


def keyword(word: Word) -> str:
    """The word's text when it is one unquoted piece (a reserved word must be), else empty."""
    return word[0].value if len(word) == 1 and word[0].kind == "text" and not word[0].quoted else ""


class _Reader:
    """Splits text into words and operators."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.heredocs: list[tuple[str, bool]] = []

    def fail(self, why: str) -> NotPlain:
        return NotPlain(why, self.line)

    def peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def skip_blanks(self) -> None:
        while self.at < len(self.text):
            if self.peek("\\\n"):
                self.at += 2
                self.line += 1
            elif self.text[self.at] in " \t\r":
                self.at += 1
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def token(self) -> Word | str | None:
        """A word, an operator's text, or None at the end."""
        while True:
            self.skip_blanks()
            if self.at >= len(self.text):
                return None
            if self.redirection():
                continue
            for operator in _OPERATORS:
                if self.peek(operator):
                    self.at += len(operator)
                    if operator == "\n":
                        self.line += 1
                        self.skip_heredocs()
                    return operator
            word = self.word()
            # The digit of `2>file` belongs to the redirection.
            if keyword(word).isdigit() and self.at < len(self.text) and self.text[self.at] in "<>":
                continue
            return word

    def redirection(self) -> bool:
        match = re.compile(r"&>>?|<<<|<<-?|>>|>\||[<>]&|[<>]").match(self.text, self.at)
        if not match or (match.group() in "<>" and self.text.startswith("(", match.end())):
            return self.process_substitution()
        self.at = match.end()
        self.skip_blanks()
        if self.process_substitution():
            return True
        target = self.word()
        if match.group() in ("<<", "<<-"):
            self.heredocs.append(("".join(part.value for part in target), match.group() == "<<-"))
        return True

    def process_substitution(self) -> bool:
        if self.peek("<(") or self.peek(">("):
            self.at += 2
            self.balanced("(", ")")
            return True
        return False

    def skip_heredocs(self) -> None:
        for end, tabs in self.heredocs:
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                found = self.text[self.at : stop]
                self.at = stop + 1
                self.line += 1
                if (found.lstrip("\t") if tabs else found) == end:
                    break
        self.heredocs.clear()

    def word(self) -> Word:
        parts: list[Part] = []
        start = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "(" and parts and parts[-1].value.endswith("=") and not parts[-1].quoted:
                # bash's arrays: NAME=(a b)
                self.at += 1
                parts.append(Part("opaque", self.balanced("(", ")")))
                continue
            if char in " \t\r\n;&|()<>":
                break
            if char == "\\":
                if self.text[self.at + 1 : self.at + 2] == "\n":
                    self.line += 1
                else:
                    parts.append(Part("text", self.text[self.at + 1 : self.at + 2], quoted=True))
                self.at += 2
            elif char == "'":
                parts.append(Part("text", self.until("'"), quoted=True))
            elif char == '"':
                parts.extend(self.double_quoted())
            elif char in "$`":
                parts.append(self.dollar(quoted=False))
            else:
                end = self.at + 1
                while end < len(self.text) and self.text[end] not in " \t\r\n;&|()<>\\'\"$`":
                    end += 1
                parts.append(Part("text", self.text[self.at : end]))
                self.at = end
        if self.at == start:
            raise self.fail(f"`{self.text[start : start + 1]}` where a word is needed")
        return tuple(parts)

    def until(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise self.fail("a quote that never ends")
        found = self.text[self.at + 1 : end]
        self.line += found.count("\n")
        self.at = end + 1
        return found

    def double_quoted(self) -> list[Part]:
        self.at += 1
        parts: list[Part] = [Part("text", "", quoted=True)]
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                return parts
            if char in "$`":
                parts.append(self.dollar(quoted=True))
                continue
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in tuple('$`"\\\n'):
                self.at += 1
                char = self.text[self.at]
                if char == "\n":
                    char = ""
                    self.line += 1
            elif char == "\n":
                self.line += 1
            parts.append(Part("text", char, quoted=True))
            self.at += 1
        raise self.fail("a quote that never ends")

    def dollar(self, quoted: bool) -> Part:
        if self.peek("`"):
            return Part("command", self.until("`"), quoted)
        self.at += 1
        if self.peek("(("):
            self.at += 2
            self.balanced("(", ")")
            self.at += 1
            return Part("opaque", "$((...))", quoted)
        if self.peek("("):
            self.at += 1
            return Part("command", self.balanced("(", ")"), quoted)
        if self.peek("{"):
            self.at += 1
            return self.braced(self.balanced("{", "}"), quoted)
        if self.peek("'") and not quoted:
            found = self.until("'")
            return Part("opaque" if "\\" in found else "text", found, quoted=True)
        if self.peek('"') and not quoted:
            return Part("text", "", quoted=True)
        char = self.text[self.at : self.at + 1]
        name = _NAME.match(self.text, self.at)
        if name:
            self.at = name.end()
            return Part("var", name.group(), quoted)
        if char in tuple("@*"):
            self.at += 1
            return Part("args", char, quoted)
        if char.isdigit():
            self.at += 1
            return Part("var", char, quoted)
        if char in tuple("#?$!-"):
            self.at += 1
            return Part("opaque", f"${char}", quoted)
        return Part("text", "$", quoted)

    def braced(self, inner: str, quoted: bool) -> Part:
        if inner in ("@", "*"):
            return Part("args", inner, quoted)
        match = _BRACED.fullmatch(inner)
        if not match:
            return Part("opaque", f"${{{inner}}}", quoted)
        name, how, other = match.groups()
        if how is None:
            return Part("var", name, quoted)
        reader = _Reader(f'"{other}"' if quoted else other)
        words: list[Part] = []
        while reader.at < len(reader.text):
            if reader.text[reader.at] in " \t\n;&|()<>":
                words.append(Part("text", reader.text[reader.at]))
                reader.at += 1
            else:
                words.extend(reader.word())
        return Part("var", name, quoted, how, tuple(words))

    def balanced(self, opening: str, closing: str) -> str:
        """The text up to the closing bracket that matches, which is passed."""
        start, depth = self.at, 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\\":
                self.at += 1
            elif char == "'":
                self.until("'")
                continue
            elif char == "\n":
                self.line += 1
            elif char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
                if not depth:
                    self.at += 1
                    return self.text[start : self.at - 1]
            self.at += 1
        raise self.fail(f"`{opening}` that never ends")

    def past(self, end: str) -> None:
        found = self.text.find(end, self.at)
        if found < 0:
            raise self.fail(f"no `{end}`")
        self.line += self.text.count("\n", self.at, found)
        self.at = found + len(end)


def steps(text: str) -> Iterator[Step]:
    """The simple commands of a script, in order and one at a time: what stands behind an ``exec`` is never looked at,
    because in the scripts of pip and uv that is Python.

    Raises:
        NotPlain: from the iterator, where the text is no shell that this reader knows.
    """
    reader = _Reader(text)
    stack: list[str] = []
    functions: list[tuple[str, int]] = []
    pending = ""
    words: list[Word] = []
    joined, line = ";", 1

    def step() -> Iterator[Step]:
        if words:
            yield Step(line, tuple(words), joined, len(stack), _function(functions))
            words.clear()

    def pop(kind: str) -> None:
        if not stack or stack.pop() != kind:
            raise reader.fail(f"`{kind}` where none is open")
        if functions and functions[-1][1] == len(stack):
            functions.pop()

    def push(kind: str) -> None:
        nonlocal pending
        if len(stack) >= _MAX_DEPTH:
            raise reader.fail("nested too deep")
        if pending:
            functions.append((pending, len(stack)))
            pending = ""
        stack.append(kind)

    while True:
        piece = reader.token()
        if piece is None:
            yield from step()
            if stack:
                raise reader.fail(f"`{stack[-1]}` is missing at the end")
            return
        if isinstance(piece, str):
            in_pattern = bool(stack) and stack[-1] == "esac" and joined.startswith(";;")
            if piece == "(" and in_pattern:
                continue
            if piece == "(" and len(words) == 1 and re.match(r"[ \t]*\)", reader.text[reader.at :]):
                pending = plain(words[0]) or "?"
                words.clear()
                reader.past(")")
            elif piece == "(" and not words:
                push(")")
            elif piece == ")" and stack and stack[-1] == "esac":
                words.clear()
                joined = ";"
            elif piece == ")":
                yield from step()
                pop(")")
            elif piece == "(":
                raise reader.fail("a bracket that cannot be read")
            else:
                ended = bool(words)
                if in_pattern and piece == "|":
                    words.clear()
                    continue
                yield from step()
                # A line break with no command before it ends nothing: `a &&` goes on in the next line.
                if piece != "\n" or ended:
                    joined = "|" if piece == "|&" else piece
            continue
        if not words:
            line = reader.line
            name = keyword(piece)
            if name in _OPENERS:
                push(_OPENERS[name])
                joined = ";"
                continue
            if name in ("then", "do", "else", "elif"):
                joined = ";"
                continue
            if name in ("fi", "done", "esac", "}"):
                pop(name)
                continue
            if name in ("!", "time"):
                continue
            if name in ("for", "select", "case"):
                push("esac" if name == "case" else "done")
                variable = _head(reader, name)
                if variable is not None:
                    # The loop's variable is read from a list, one after the other.
                    yield Step(line, ((Part("text", "read"),), variable), ";", len(stack), _function(functions))
                joined = ";;" if name == "case" else ";"
                continue
            if name == "function":
                following = reader.token()
                pending = "?" if following is None or isinstance(following, str) else plain(following) or "?"
                if re.match(r"[ \t]*\([ \t]*\)", reader.text[reader.at :]):
                    reader.past(")")
                continue
            if name == "[[":
                reader.past("]]")
        words.append(piece)


def _function(functions: list[tuple[str, int]]) -> str:
    return functions[-1][0] if functions else ""


def _head(reader: _Reader, name: str) -> Word | None:
    """Pass what stands between ``for`` and its ``;``, or between ``case`` and its ``in``; gives the loop's variable."""
    variable: Word | None = None
    while True:
        piece = reader.token()
        if piece is None:
            raise reader.fail(f"`{name}` that never ends")
        if isinstance(piece, str):
            if name != "case" and piece in (";", "\n"):
                return variable
        elif name == "case" and keyword(piece) == "in":
            return None
        elif name != "case" and variable is None:
            variable = piece


class _Fields:
    """The fields of one word in the making. Source: POSIX, Shell Command Language, 2.6.5 "Field Splitting", with IFS
    as it is by default."""

    def __init__(self) -> None:
        self.found: list[str | None] = []
        self._open = False

    def end(self) -> None:
        """What comes next is another field."""
        self._open = False

    def add(self, value: str | None, quoted: bool) -> None:
        if quoted or value is None:
            self._append(value)
            return
        if value[:1].isspace():
            self.end()
        for number, piece in enumerate(value.split()):
            if number:
                self.end()
            self._append(piece)
        if value[-1:].isspace():
            self.end()

    def _append(self, value: str | None) -> None:
        if self._open:
            self.found[-1] = _join(self.found[-1], value)
        else:
            self.found.append(value)
        self._open = True


@dataclass
class Values:
    """What a script's expansions are looked up in. A variable that is None has a value that only running would tell;
    ``args`` None likewise."""

    variables: dict[str, str | None]
    args: Sequence[str | None] | None
    zero: str
    cwd: str | None
    realpath: Callable[[str], str]

    def expand(self, word: Word) -> list[str | None]:
        """The fields that the word becomes; None for a field that only running would tell."""
        fields = _Fields()
        as_ever = "IFS" not in self.variables
        for index, part in enumerate(word):
            if part.kind == "args":
                for number, argument in enumerate([None] if self.args is None else self.args):
                    if number:
                        fields.end()
                    fields.add(argument if as_ever or part.quoted else None, part.quoted)
                continue
            if part.kind == "text" and not part.quoted:
                fields.add(self._unquoted_text(part.value, first=not index), True)
                continue
            for value, quoted in self._pieces(part):
                fields.add(value if as_ever or quoted else None, quoted)
        return fields.found

    def _pieces(self, part: Part) -> list[tuple[str | None, bool]]:
        """What one part stands for: values, and whether each is kept from splitting."""
        if part.kind == "var" and part.how and self._takes_other(part):
            if part.how.endswith("="):
                return [(self._value(part), part.quoted)]
            return [(self._value(piece), part.quoted or piece.quoted) for piece in part.other]
        return [(self._value(part), part.quoted or part.kind == "text")]

    def _unquoted_text(self, text: str, *, first: bool) -> str | None:
        if first and (text == "~" or text.startswith("~/")):
            home = self.variables.get("HOME")
            return None if home is None else home + text[1:]
        return None if any(char in text for char in "*?[") or _BRACES.search(text) else text

    def _assigned_text(self, text: str, *, first: bool) -> str | None:
        """Unquoted text in an assignment, where a home may also stand behind a colon (POSIX, 2.6.1)."""
        pieces = text.split(":")
        for index, piece in enumerate(pieces):
            if piece.startswith("~") and (index or first):
                home = self.variables.get("HOME") if piece == "~" or piece.startswith("~/") else None
                if home is None:
                    return None
                pieces[index] = home + piece[1:]
        return ":".join(pieces)

    def one(self, word: Word) -> str | None:
        """The word as one string, as in an assignment: no splitting into fields."""
        values = [
            self._assigned_text(part.value, first=not index or not word[0].value)
            if part.kind == "text" and not part.quoted
            else self._value(part)
            for index, part in enumerate(word)
            if part.kind != "args"
        ]
        if len(values) != len(word) or None in values:
            return None
        return "".join(value for value in values if value is not None)

    def _value(self, part: Part) -> str | None:
        """The text that a part stands for, None where only running would tell."""
        if part.kind == "text":
            return part.value
        if part.kind == "command":
            return self._command(part.value)
        if part.kind != "var":
            return None
        if part.how and self._takes_other(part):
            other = self.one(part.other)
            if part.how.endswith("="):
                self.variables[part.value] = other
            return other
        found = self._variable(part.value)
        if part.how.endswith("+"):
            return None if self._is_unknown(part.value) else ""
        if part.how.endswith("?") and not found:
            return None
        return found if found is not None or self._is_unknown(part.value) else ""

    def _takes_other(self, part: Part) -> bool:
        """Whether ``${name:-other}`` and its kin stand for their other word."""
        if self._is_unknown(part.value) or part.how.endswith("?"):
            return False
        found = self._variable(part.value)
        is_set = bool(found) if part.how.startswith(":") else found is not None
        return is_set if part.how.endswith("+") else not is_set

    def _is_unknown(self, name: str) -> bool:
        if name.isdigit() and name != "0":
            return self.args is None or (int(name) <= len(self.args) and self.args[int(name) - 1] is None)
        if name == "PWD":
            return self.cwd is None
        if name not in self.variables:
            return name in _OWN or name.startswith("BASH")
        return self.variables[name] is None

    def _variable(self, name: str) -> str | None:
        """The variable's value, None where it is not set (or not known)."""
        if name == "0":
            return self.zero
        if name.isdigit():
            return self.args[int(name) - 1] if self.args is not None and int(name) <= len(self.args) else None
        return self.cwd if name == "PWD" else self.variables.get(name)

    def _command(self, text: str) -> str | None:
        """The few command substitutions that tell where a script lies; None for any other."""
        try:
            found = list(steps(text))
        except NotPlain:
            return None
        where = self.cwd
        if len(found) == 2 and found[0].name in ("cd", "CDPATH=") and found[1].joined in ("&&", ";"):
            fields = [field for word in found[0].words for field in self.expand(word)]
            fields = [field for field in fields if field not in ("CDPATH=", "cd", "--", "-P")]
            if len(fields) != 1 or fields[0] is None or where is None:
                return None
            where = posixpath.normpath(posixpath.join(where, fields[0]))
            found = found[1:]
        if len(found) != 1 or found[0].depth:
            return None
        fields = [field for word in found[0].words for field in self.expand(word)]
        if None in fields or where is None:
            return None
        command, *arguments = [field for field in fields if field is not None]
        arguments = [argument for argument in arguments if argument != "--"]
        if command == "pwd" and arguments in ([], ["-P"]):
            return where
        if command == "echo" and len(arguments) == 1 and arguments[0] == where:
            return where
        if command == "dirname" and len(arguments) == 1:
            return posixpath.dirname(arguments[0]) or "."
        if command in ("realpath", "readlink") and arguments and arguments[0] in ("-f", "-e", "-m"):
            arguments = arguments[1:]
        elif command == "readlink":
            return None
        if command in ("realpath", "readlink") and len(arguments) == 1:
            return self.realpath(posixpath.join(where, arguments[0]))
        return None


def _join(left: str | None, right: str | None) -> str | None:
    return None if left is None or right is None else left + right


def assignment(word: Word, *, quoted: bool = False) -> tuple[str, Word] | None:
    """The name and the value of ``NAME=value``, or of ``NAME+=value`` the value with what the name stands for before
    it; None where the word is no assignment. Only as an argument (``export "NAME=value"``) may the name be ``quoted``.
    """
    head = ""
    for index, part in enumerate(word):
        if part.kind != "text" or (part.quoted and not quoted):
            return None
        head += part.value
        if match := _ASSIGNMENT.fullmatch(head):
            rest = Part("text", match[3], part.quoted)
            before = (Part("var", match[1], quoted=True),) if match[2] else ()
            return match[1], (*before, rest, *word[index + 1 :])
    return None


def environment(values: Mapping[str, str | None]) -> dict[str, str]:
    """The variables whose values are known."""
    return {name: value for name, value in values.items() if value is not None}
