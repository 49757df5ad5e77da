"""Reading shell: against a real shell where it can say the same."""

from __future__ import annotations

import contextlib
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.site.shell import NotPlain, Values, plain, steps

SHELL = shutil.which("bash") or "/bin/bash"


def commands(text: str) -> list[tuple[str, int]]:
    return [(" ".join(plain(word) or "?" for word in step.words), step.depth) for step in steps(text)]


def test_commands_are_split_and_know_what_stands_around_them() -> None:
    text = """#!/bin/sh
a 1; b && c || d
if e; then f; elif g; then h; else i; fi
for x in 1 2; do j; done; while k; do l; done
case $x in a|b) m;; (c) n;; esac
{ o; }; (p)
q | r |& s &
function t { u; }
v() { w; }
[[ x && y ]] && z
"""
    assert commands(text) == [
        ("a 1", 0), ("b", 0), ("c", 0), ("d", 0),
        ("e", 1), ("f", 1), ("g", 1), ("h", 1), ("i", 1),
        ("read x", 1), ("j", 1), ("k", 1), ("l", 1),
        ("m", 1), ("n", 1),
        ("o", 1), ("p", 1),
        ("q", 0), ("r", 0), ("s", 0),
        ("u", 1), ("w", 1),
        ("[[", 0), ("z", 0),
    ]  # fmt: skip


def test_an_array_is_one_word() -> None:
    assert commands('declare -a P=( "$D"/*@(.txt|.sh) )\nx=(a b)\nc\n') == [("declare -a ?", 0), ("?", 0), ("c", 0)]


def test_a_function_is_known_by_name() -> None:
    found = {plain(step.words[0]): step.function for step in steps("f() { a; }\nfunction g() { b; }\nc\n")}
    assert found == {"a": "f", "b": "g", "c": ""}


def test_comments_here_documents_redirections_and_broken_lines_are_passed() -> None:
    text = "a # no 'quote\nb <<E >/x 2>&1 3<&0 &>>y\nc\nE\nd \\\n e <<-'F' <<<g\n\tx\n\tF\nh > >(tee z) &&\n\n i\n"
    assert commands(text) == [("a", 0), ("b", 0), ("d e", 0), ("h", 0), ("i", 0)]


def test_what_stands_behind_a_command_is_not_looked_at_before_it_is_asked_for() -> None:
    first = next(steps("exec a\nthis is '''python (\n"))
    assert plain(first.words[1]) == "a"


@pytest.mark.parametrize(
    "text", ["'a", '"a', "`a", "${a", "$(a", "if a; then b", "fi", "done", "a)", "a (b)", "case x"]
)
def test_what_is_no_shell_says_so(text: str) -> None:
    with pytest.raises(NotPlain):
        list(steps(text))


WORDS = [
    "a'b c'd",
    '"a b"c',
    "a\\ b",
    '"\\$X \\" \\\\ \\n"',
    "$X",
    '"$X"',
    "${X}y",
    '"${X}"',
    "$E",
    '"$E"',
    "${E:-d}",
    "${E-d}",
    "${U-d}",
    '${U:-"d e"}',
    "${X:+d}",
    "${E:+d}",
    "'$X'",
    "$S",
    '"$S"',
    "a$S",
    "$'x'",
    '"$@"',
    "$@",
    '"p$@q"',
    "$1$2",
    '"$0"',
    "~/x",
    '"~/x"',
    "$",
    "a$",
    "$(dirname /a/b)",
    '"$(dirname -- "$0")"',
    '"$(cd /usr && pwd)"',
    "$(basename /x)",
    "${1:-z}",
    "${3:-z}",
    "${3-z}$3",
    '"${2}"$S"${1}"',
    "${S:-x}",
    '${U:-"$S"}',
    "${U:-$S}",
    "${E:=q}$E",
    "p$@",
    "$@$@",
]


@pytest.mark.parametrize("word", WORDS)
def test_words_become_the_fields_that_a_shell_makes_of_them(word: str) -> None:
    env = {"X": "x1", "E": "", "S": " two  words ", "HOME": "/h"}
    arguments = ["one", "t w o"]
    code = f"for field in {word}; do printf '%s\\0' \"$field\"; done"
    done = subprocess.run([SHELL, "-c", code, "/z/zero", *arguments], env=env, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    step = next(steps(f"c {word}"))
    values = Values(dict(env), arguments, "/z/zero", "/", lambda path: path)
    found = [field for part in step.words[1:] for field in values.expand(part)]
    wanted: list[str | None] = list(done.stdout.split("\0")[:-1])
    assert found == wanted or (None in found and "basename" in word)


@pytest.mark.parametrize("word", ["$(cat x)", "`id`", "$((1+1))", "${X%y}", "${#X}", "$?", "$$", "*.py", "$K", '"$K"'])
def test_what_only_running_tells_is_none(word: str) -> None:
    values = Values({"X": "x", "K": None}, [], "z", "/", lambda path: path)
    assert None in values.expand(next(steps(f"c {word}")).words[1])


PIECES = [
    "if",
    "fi",
    "case",
    "in",
    "esac",
    ";;",
    "(",
    ")",
    "{",
    "}",
    "$(",
    "`",
    "'",
    '"',
    "\\",
    "\n",
    " ",
    "|",
    "&",
    ";",
]
PIECES += [
    "<<E",
    "E",
    "<(",
    "${",
    "$",
    "a",
    "=",
    "#",
    "for",
    "do",
    "done",
    "function",
    "[[",
    "]]",
    "((",
    "$'",
    "2>",
    "exec",
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(max_size=60))
def test_any_text_is_read_to_its_end_or_said_to_be_no_shell(text: str) -> None:
    values = Values({"X": "x"}, ["a", None], "z", "/", lambda path: path)
    with contextlib.suppress(NotPlain):
        for step in steps(text):
            for word in step.words:
                values.expand(word)
