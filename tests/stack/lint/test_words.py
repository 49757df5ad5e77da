"""Text is cut into words as the shell and as Compose cut it; both are asked."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from patchkit.stack import compose_model
from patchkit.stack.lint.words import Placed, compose_words, shell_commands

PIECES = ["a", "b", "--x", "1", " ", " ", "\n", "\t", '"', "'", "\\", "#", "$$", "=", ";", "&", "|", "<", ">", "(", ")"]
PIECES += ["`", "$$(", "n", "t", "2"]


def texts(seed: int, pieces: list[str], count: int) -> list[str]:
    chance = random.Random(seed)
    made = ["".join(chance.choice(pieces) for _ in range(chance.randint(1, 14))) for _ in range(count)]
    return [text for text in made if text.strip()]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_command_string_is_split_as_compose_itself_splits_it(tmp_path: Path, seed: int) -> None:
    sound = [text for text in texts(seed, PIECES, 1500) if not compose_words(Placed.whole(text)).broken]
    services = {f"s{number}": {"image": "x", "command": text} for number, text in enumerate(sound)}
    file = tmp_path / "compose.yaml"
    file.write_text(json.dumps({"services": services}))
    model = compose_model.read([file])
    theirs = {service.name: service.command or () for service in model.services}
    ours = {
        f"s{number}": tuple(word.text for word in compose_words(Placed.whole(text)).words)
        for number, text in enumerate(sound)
    }
    assert len(ours) > 500
    assert ours == theirs


def test_what_we_call_broken_compose_refuses(tmp_path: Path) -> None:
    broken = [text for text in texts(4, PIECES, 300) if compose_words(Placed.whole(text)).broken][:25]
    assert len(broken) == 25
    file = tmp_path / "compose.yaml"
    for text in broken:
        file.write_text(json.dumps({"services": {"s": {"image": "x", "command": text}}}))
        done = subprocess.run([*compose_model.compose_command(), "-f", str(file), "config"], capture_output=True)
        assert done.returncode != 0, text


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_script_is_cut_as_bash_itself_cuts_it(tmp_path: Path, seed: int) -> None:
    pieces = ["a", "b", "--x", " ", " ", "\n", '"', "'", "\\", "\\\n", "#", " #", "=", ";", "&&", "||", "w", "1"]
    script = tmp_path / "show.sh"
    script.write_text('printf "%s\\0" "$#" "$@"\n')
    chosen = []
    for text in texts(seed, pieces, 400):
        whole = f"bash {script} {text}"
        # What a backslash as the very last character means is nowhere laid down, and bash itself wavers.
        if whole[-1] != "\\" and subprocess.run(["bash", "-nc", whole], capture_output=True).returncode == 0:
            chosen.append(whole)
    assert len(chosen) > 40
    for whole in chosen[:60]:
        first = shell_commands(Placed.whole(whole))[0]
        done = subprocess.run(["bash", "-c", whole], capture_output=True, text=True, cwd=tmp_path)
        count, _, rest = done.stdout.partition("\0")
        theirs = rest.split("\0")[: int(count)]
        assert [word.text for word in first.words[2:]] == theirs, whole


def test_every_word_knows_its_place_in_the_file() -> None:
    text = "FOO=1 exec vllm serve \"a b\" \\\n  --x='1 2' --y $Z # no\n"
    (command,) = shell_commands(Placed.whole(text))
    assert [text[word.start : word.end] for word in command.words] == [
        *("FOO=1", "exec", "vllm", "serve", '"a b"', "--x='1 2'", "--y", "$Z"),
    ]


def test_here_documents_and_redirections_are_no_words() -> None:
    text = "cat <<'EOF' > out\nvllm serve no\nEOF\nvllm serve yes 2>&1 > log\n"
    commands = [[word.text for word in command.words] for command in shell_commands(Placed.whole(text))]
    assert commands == [["cat"], ["vllm", "serve", "yes"]]
