"""Starts in a compose file as a person wrote it, with the place of every word.

What several files, ``extends`` and variables make of it together is Compose's own business (``compose_model``); here
the text is read, since what a comment swallowed is no longer in the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from patchkit.errors import BadInput
from patchkit.findings import Severity
from patchkit.stack.lint.model import Edit, Issue, Setting, Source, Start
from patchkit.stack.lint.scripts import arguments_of_entrypoint, serve_arguments, starts_in_shell
from patchkit.stack.lint.words import Placed, Word, compose_words

_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
#: A variable that Compose fills in and that has neither default nor error message; the second `$` of `$$` starts none.
_BARE_VARIABLE = re.compile(r"(?<!\$)(?:\$\$)*\$(?:\{(\w+)\}|(\w+))")
_DEFAULT = re.compile(r"\$\{\w+:?-([^}]*)\}")


def starts_in_compose(source: Source) -> list[Start]:
    """The services of the file that start a model server.

    Raises:
        patchkit.errors.BadInput: ``compose-invalid``, the file is no YAML or no compose file.
    """
    try:
        root = yaml.compose(source.text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = source.place(mark.index) if mark else source.path
        raise BadInput("compose-invalid", f"not YAML: {error.problem}", where=where, remedy="mend that line") from None
    except yaml.reader.ReaderError as error:
        what = f"a character that YAML forbids: {error.character!r}"
        raise BadInput("compose-invalid", what, where=source.place(error.position), remedy="take it out") from None
    except RecursionError:
        raise BadInput("compose-invalid", "nested too deep", where=source.path, remedy="flatten the file") from None
    services = _get(root, "services")
    if not isinstance(services, yaml.MappingNode):
        raise BadInput("compose-invalid", "no services in it", where=source.path, remedy="name a compose file")
    found = []
    for key, node in services.value:
        start = _Service(source, key.value, node).start() if isinstance(node, yaml.MappingNode) else None
        if start is not None:
            found.append(start)
    return found


def starts_in_files(paths: list[Path]) -> list[Start]:
    """The starts of all files. Raises as ``starts_in_compose``."""
    return [start for path in paths for start in starts_in_compose(Source(str(path), path.read_text("utf-8")))]


def resolved(text: str) -> str:
    """An image's name with each variable replaced by its default."""
    return _DEFAULT.sub(r"\1", text)


class _Service:
    def __init__(self, source: Source, name: str, node: yaml.MappingNode) -> None:
        self.source = source
        self.name = name
        self.node = node
        self.faults: list[Issue] = []
        self.dropped: list[Placed] = []

    def start(self) -> Start | None:
        entrypoint, _ = self._words("entrypoint")
        command, command_string = self._words("command")
        env = self._environment()
        image = self._image()
        words = [*entrypoint, *command]
        shell = _shell_script(words)
        if shell is None:
            start = self._plain(words, image, env)
        else:
            start = self._shell(words, shell, entrypoint, command_string, env)
        if start is None:
            return None
        healthcheck = _get(self.node, "healthcheck")
        disabled = isinstance(healthcheck, yaml.MappingNode) and _text(_get(healthcheck, "disable")) == "true"
        return replace(
            start,
            at=self.node.start_mark.index,
            image=image or start.image,
            service=self.name,
            mounts=self._mounts(),
            devices=tuple(self._devices()),
            has_healthcheck=healthcheck is not None and not disabled,
            faults=tuple(self.faults),
        )

    def _plain(self, words: list[Word], image: Word | None, env: dict[str, Setting]) -> Start | None:
        args = serve_arguments(words)
        if args is None and self.dropped:
            # The server stands behind what Compose stopped reading at.
            starts = starts_in_shell(self.source, self.dropped[0], editable=False, env=env)
            return starts[0] if starts else None
        if args is None and words and image is not None and "vllm" in image.text:
            args = arguments_of_entrypoint(words)
        return None if args is None else Start(self.source, words[0].start, args, (), env, image)

    def _shell(
        self, words: list[Word], shell: int, entrypoint: list[Word], command_string: bool, env: dict[str, Setting]
    ) -> Start | None:
        script = words[shell]
        if command_string and shell == len(entrypoint) and len(words) > shell + 1:
            dropped = " ".join(word.text for word in words[shell + 1 :])
            self._fault(
                "string-under-shell",
                "Compose splits the command string, and the shell runs its first word alone",
                script.start,
                f"{words[shell].text!r} is run; {_short(dropped)} become $0, $1 and so on",
                "make it a list of one block: command: [ | ... ]",
            )
            script = Word(
                " ".join(word.text for word in words[shell:]),
                script.start,
                words[-1].end,
                tuple(at for word in words[shell:] for at in (*word.at, word.end))[:-1],
                False,
            )
        text = Placed(script.text, script.at, script.exact)
        starts = starts_in_shell(self.source, text, editable=script.exact and self._is_block(script), env=env)
        return starts[0] if starts else None

    def _is_block(self, script: Word) -> bool:
        """Whether the script's lines are whole lines of the file: a literal block, not a folded or quoted one."""
        head = self.source.text[: script.start].rstrip().rpartition("\n")[2]
        return re.search(r"\|[-+0-9]*\s*(#.*)?$", head) is not None

    def _words(self, key: str) -> tuple[list[Word], bool]:
        """The words of ``command`` or ``entrypoint`` and whether it is written as one string."""
        node = _get(self.node, key)
        if isinstance(node, yaml.SequenceNode):
            words = []
            for item in node.value:
                if isinstance(item, yaml.ScalarNode):
                    placed = _placed(self.source, item)
                    self._variables(placed)
                    words.append(_whole(_undollar(placed)))
            return words, False
        if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":null"):
            return [], False
        placed = _placed(self.source, node)
        self._variables(placed)
        split = compose_words(placed)
        if split.broken or split.stopped >= 0:
            self.dropped.append(placed)
        if split.broken:
            self._fault("string-broken", f"Compose refuses the {key}: {split.broken}", node.start_mark.index)
        if split.stopped >= 0:
            self._fault(
                "string-command",
                f"Compose runs no shell: it reads the {key} up to {placed.text[split.stopped]!r} and drops the rest",
                placed.at[split.stopped],
                _short(placed.text[split.stopped :]),
                'give it to a shell: command: ["bash", "-c", "..."]',
            )
        return [word for given in split.words for word in self._own_shape(key, given)], True

    def _own_shape(self, key: str, word: Word) -> Iterator[Word]:
        """A word of a command string without what a person meant for a shell."""
        if word.text == "#":
            self._fault(
                "string-command",
                f"Compose runs no shell: # begins no comment in the {key}, the words behind it become arguments",
                word.start,
                remedy="put the comment above the command, as a YAML comment",
            )
            return
        stripped = word.text.lstrip()
        cut = len(word.text) - len(stripped)
        if cut and self.source.text[word.start : word.start + 1] == "\\":
            self._fault(
                "string-command",
                f"Compose joins no lines in the {key}: what stands behind the backslash becomes part of an argument",
                word.start,
                repr(word.text),
                "take the backslash out; the lines of a string are one command anyway",
                [Edit(word.start, word.start + 1, "")] if word.exact else [],
            )
        if stripped:
            start = word.at[cut] if cut else word.start
            yield Word(stripped, start, word.end, word.at[cut:], word.exact)

    def _variables(self, placed: Placed) -> None:
        for match in _BARE_VARIABLE.finditer(placed.text):
            name = match[1] or match[2]
            self._fault(
                "compose-variable",
                f"Compose fills in ${name} from the shell that runs it, or with nothing where it is not set there",
                placed.at[match.end() - 1],
                match.group(),
                f"${{{name}:?}} to insist on a value; $${name} if the container's shell is to fill it in",
            )

    def _environment(self) -> dict[str, Setting]:
        node = _get(self.node, "environment")
        found = {}
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                name, _, text = _text(item).partition("=")
                found[name] = Setting(text.replace("$$", "$"), item.start_mark.index)
        elif isinstance(node, yaml.MappingNode):
            for key, value in _pairs(node):
                found[key.value] = Setting(_text(value).replace("$$", "$"), key.start_mark.index)
        return found

    def _image(self) -> Word | None:
        node = _get(self.node, "image")
        if not isinstance(node, yaml.ScalarNode):
            return None
        return Word(resolved(node.value), node.start_mark.index, node.end_mark.index)

    def _mounts(self) -> tuple[Word, ...]:
        node = _get(self.node, "volumes")
        found = []
        for item in node.value if isinstance(node, yaml.SequenceNode) else ():
            if isinstance(item, yaml.MappingNode):
                target = _text(_get(item, "target"))
            else:
                parts = _text(item).split(":")
                target = next((part for part in parts[1:] if part.startswith("/")), parts[0])
            found.append(Word(target, item.start_mark.index, item.end_mark.index))
        return tuple(found)

    def _devices(self) -> Iterator[str]:
        node = _get(self.node, "devices")
        for item in node.value if isinstance(node, yaml.SequenceNode) else ():
            yield _text(item)
        reserved = _get(_get(_get(_get(self.node, "deploy"), "resources"), "reservations"), "devices")
        if reserved is not None or _get(self.node, "gpus") is not None:
            yield "gpu"

    def _fault(
        self,
        name: str,
        what: str,
        at: int,
        evidence: str = "",
        remedy: str = "",
        edits: list[Edit] | None = None,
    ) -> None:
        severity: Severity = "warning" if name == "compose-variable" else "error"
        place = Start(self.source, at, (), service=self.name)
        self.faults.append(place.issue(name, severity, what, at, evidence=evidence, remedy=remedy, edits=edits or []))


def _shell_script(words: list[Word]) -> int | None:
    """The index of the word that a shell runs as script, None where no shell is started with ``-c``."""
    for index, word in enumerate(words[:-1]):
        if word.text.rpartition("/")[2] in _SHELLS:
            for option in range(index + 1, len(words) - 1):
                if re.fullmatch(r"-[a-z]*c", words[option].text):
                    return option + 1
                if not words[option].text.startswith("-") and words[option - 1].text != "-o":
                    return None
    return None


def _get(node: yaml.Node | None, name: str) -> yaml.Node | None:
    """The value of a key, one that came by a merge key (``<<``) too."""
    return next((value for key, value in _pairs(node) if key.value == name), None)


def _pairs(node: yaml.Node | None) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    """The pairs of a mapping, its own before those that come by merge keys. No node is walked twice: a few aliases that
    are merged into each other would otherwise be walked forever."""
    seen = set()
    waiting = [node]
    while waiting:
        mapping = waiting.pop(0)
        if not isinstance(mapping, yaml.MappingNode) or id(mapping) in seen:
            continue
        seen.add(id(mapping))
        for key, value in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value != "<<":
                yield key, value
            else:
                waiting += value.value if isinstance(value, yaml.SequenceNode) else [value]


def _text(node: yaml.Node | None) -> str:
    return node.value if isinstance(node, yaml.ScalarNode) else ""


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 160 else f"{flat[:157]}..."


def _whole(placed: Placed) -> Word:
    if not placed.text:
        return Word("")
    return Word(placed.text, placed.at[0], placed.at[-1] + 1, tuple(placed.at), placed.exact)


def _undollar(placed: Placed) -> Placed:
    """What Compose hands on: one ``$`` for each ``$$``."""
    kept = []
    index = 0
    while index < len(placed.text):
        kept.append(index)
        index += 2 if placed.text.startswith("$$", index) else 1
    return Placed("".join(placed.text[each] for each in kept), [placed.at[each] for each in kept], placed.exact)


def _placed(source: Source, node: yaml.ScalarNode) -> Placed:
    """The scalar's value with the file offset of each character, found by walking the raw text alongside."""
    raw_end = node.end_mark.index
    index = node.start_mark.index
    if node.style in ("|", ">"):
        index = source.text.find("\n", index) + 1
    elif node.style in ("'", '"'):
        index += 1
    if node.style == '"' and "\\" in source.text[index:raw_end]:
        return Placed(node.value, [node.start_mark.index] * len(node.value), exact=False)
    at = []
    for char in node.value:
        if char == "\n" and node.style == "|":
            index = source.text.find("\n", index)
        elif not char.isspace():
            index = source.text.find(char, index)
        at.append(min(index, raw_end - 1))
        if char == source.text[index : index + 1]:
            index += 1
    return Placed(node.value, at)
