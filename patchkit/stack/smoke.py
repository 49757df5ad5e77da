"""Smoke: a few requests that show whether a server really serves, one check a line, and what each failure means."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from patchkit.errors import BadInput, PatchkitError
from patchkit.stack.openai import Server, ServerError, models, pieces

#: Text that a parser should have taken out of the content.
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "<arg_value>", "<|tool")
_CHAT = "/v1/chat/completions"
#: Steps after which a job that needs three calls counts as one that does not end.
_MAX_STEPS = 12

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to ask. ``model`` is the served name, empty for the first one listed; ``max_tokens`` must leave room for
    reasoning, which counts too; ``reasoning`` says whether the model is to give it separately."""

    model: str = ""
    max_tokens: int = 4096
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """One check's outcome: ``passes`` of ``runs``, the median of its seconds, what was seen, and for a failure what it
    means."""

    id: str
    outcome: Literal["passed", "failed"]
    what: str
    seconds: float
    passes: int = 1
    runs: int = 1
    means: str = ""

    def as_json(self) -> Json:
        """The check for programs."""
        return {
            "id": self.id,
            "outcome": self.outcome,
            "what": self.what,
            "seconds": round(self.seconds, 3),
            "passes": self.passes,
            "runs": self.runs,
            "means": self.means,
        }


class _Failed(Exception):  # noqa: N818 - read aloud it says what happened
    """A check that did not hold: what was seen, and what it means."""

    def __init__(self, what: str, means: str) -> None:
        super().__init__(what)
        self.what = what
        self.means = means


Probe = Callable[[Server, Settings], str]


def smoke(server: Server, settings: Settings, *, tools: bool = False, repeat: int = 1) -> Iterator[Check]:
    """The checks one after the other; a server without health or model list is asked nothing more.

    Args:
        server: the server.
        settings: how to ask.
        tools: look at every kind of tool calling, and count repeated calls.
        repeat: how often each check is run.
    """
    for name, probe in FIRST.items():
        check = _run(name, probe, server, settings, 1)
        yield check
        if check.outcome == "failed":
            return
    model = settings.model or str(models(server)[0]["id"])
    chosen = Settings(model, settings.max_tokens, settings.reasoning)
    probes = {**BASIC, **TOOLS} if tools else BASIC
    for name, probe in probes.items():
        yield _run(name, probe, server, chosen, repeat)


def _run(name: str, probe: Probe, server: Server, settings: Settings, repeat: int) -> Check:
    seconds, seen, failures = [], "", []
    for _ in range(repeat):
        begin = time.perf_counter()
        try:
            seen = probe(server, settings)
        except _Failed as failure:
            failures.append(failure)
        except BadInput:
            raise
        except PatchkitError as error:
            failures.append(_Failed(error.what, error.remedy or ""))
        seconds.append(time.perf_counter() - begin)
    middle = sorted(seconds)[len(seconds) // 2]
    passes = repeat - len(failures)
    if failures:
        return Check(name, "failed", failures[0].what, middle, passes, repeat, failures[0].means)
    return Check(name, "passed", seen, middle, passes, repeat)


def _health(server: Server, settings: Settings) -> str:
    status, _ = server.get("/health")
    if status != 200:
        raise _Failed(f"/health answers {status}", "the engine behind the API is dead or still loads: read its log")
    return "/health answers 200"


def _models(server: Server, settings: Settings) -> str:
    names = [str(each["id"]) for each in models(server)]
    if settings.model and settings.model not in names:
        raise _Failed(
            f"{settings.model} is not served; listed are {', '.join(names)}",
            "clients that ask for it get 404: --served-model-name sets the name",
        )
    if not names:
        raise _Failed("the model list is empty", "nothing is loaded")
    return ", ".join(names)


def _chat(server: Server, settings: Settings) -> str:
    message, reason = _answer(server, settings, [_user("What is 17*23? Answer briefly.")])
    reasoning = _reasoning(message)
    _clean(message, settings)
    if settings.reasoning and not reasoning:
        raise _Failed(
            "no reasoning came separately",
            "the server runs without a reasoning parser, or with one that does not fit the model",
        )
    return f"{len(message.get('content') or '')} characters, {len(reasoning)} of reasoning, ended by {reason}"


def _stream(server: Server, settings: Settings) -> str:
    content, reasoning, first, reason = "", "", 0.0, ""
    for event in server.stream(_CHAT, _body(settings, [_user("Name three colours.")])):
        thought, said = pieces(event.data)
        first = first or (event.seconds if thought or said else 0.0)
        content, reasoning = content + said, reasoning + thought
        reason = (event.data.get("choices") or [{}])[0].get("finish_reason") or reason
    _clean({"content": content, "reasoning": reasoning}, settings)
    if not reason:
        raise _Failed("the stream ends without a finish_reason", "clients take such an answer for cut off")
    return f"first token after {first:.2f} s, {len(content)} characters, ended by {reason}"


def _tool(server: Server, settings: Settings) -> str:
    calls = _calls(server, settings, "What is the weather in Paris right now? Use the tool.", [WEATHER])
    _expect(calls, [("get_weather", {"city": "Paris"})])
    return _told(calls)


def _typed(server: Server, settings: Settings) -> str:
    asked = (
        "Book a table for 4 people at the restaurant Roma, outdoors yes, time slot evening, with the notes 'birthday' "
        "and 'window'. Use the tool."
    )
    calls = _calls(server, settings, asked, [BOOK])
    wanted = {"restaurant": "Roma", "people": 4, "outdoors": True, "slot": "evening", "notes": ["birthday", "window"]}
    _expect(calls, [("book_table", wanted)])
    return _told(calls)


def _selection(server: Server, settings: Settings) -> str:
    calls = _calls(server, settings, "How much is 12 euros in US dollars? Use a tool.", [WEATHER, BOOK, CONVERT])
    _expect(calls, [("convert_currency", {"amount": 12, "source": "EUR", "target": "USD"})])
    return _told(calls)


def _parallel(server: Server, settings: Settings) -> str:
    asked = "What is the weather in Paris and in Rome? Call the tool for both at once."
    calls = _calls(server, settings, asked, [WEATHER])
    _expect(calls, [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})])
    return _told(calls)


def _multi_turn(server: Server, settings: Settings) -> str:
    talk = [_user("What is the weather in Paris? Use the tool, then answer in one sentence.")]
    message, _ = _answer(server, settings, talk, [WEATHER])
    calls = _calls_of(message)
    _expect(calls, [("get_weather", {"city": "Paris"})])
    talk += [_assistant(message), _result(message["tool_calls"][0], {"sky": "clear", "celsius": 21})]
    last, _ = _answer(server, settings, talk, [WEATHER])
    _clean(last, settings)
    if last.get("tool_calls"):
        raise _Failed(
            f"it calls again after the result: {_told(_calls_of(last))}",
            "the chat template does not hand tool results to the model, or the parser lost them",
        )
    if "21" not in (last.get("content") or ""):
        raise _Failed("the answer does not use the tool's result", "the result did not reach the model")
    return "one call, then an answer from its result"


def _none(server: Server, settings: Settings) -> str:
    asked = [_user("What is the weather in Paris? Do not use tools, say that you cannot know.")]
    message, _ = _answer(server, settings, asked, [WEATHER], tool_choice="none")
    if message.get("tool_calls"):
        raise _Failed(
            "it calls a tool under tool_choice none",
            "start the server with --exclude-tools-when-tool-choice-none",
        )
    _clean(message, settings)
    return "no call"


def _escaping(server: Server, settings: Settings) -> str:
    text = 'line one\nsaid "hi" \\ {"a": 1} <b> é'
    asked = f"Save exactly this text, which stands between the arrows, with the tool: >>>{text}<<<"
    calls = _calls(server, settings, asked, [SAVE])
    _expect(calls, [("save_text", {"text": text})])
    return "quotes, a line break, a backslash, braces, tags and an accent came through"


def _stream_tool(server: Server, settings: Settings) -> str:
    body = _body(settings, [_user("What is the weather in Paris right now? Use the tool.")], [WEATHER])
    parts: dict[int, list[str]] = {}
    content = ""
    for event in server.stream(_CHAT, body):
        content += pieces(event.data)[1]
        delta = (event.data.get("choices") or [{}])[0].get("delta") or {}
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            name, text = parts.setdefault(int(call.get("index") or 0), ["", ""])
            parts[int(call.get("index") or 0)] = [
                name + (function.get("name") or ""),
                text + (function.get("arguments") or ""),
            ]
    _no_tags(content)
    calls = [(name, _arguments(text)) for name, text in parts.values()]
    _expect(calls, [("get_weather", {"city": "Paris"})])
    return _told(calls)


def _repeats(server: Server, settings: Settings) -> str:
    """A job of three calls, with tools that answer: how many calls does it take, and how many of them twice?"""
    talk = [_user("Write one sentence each on the weather in Paris, Rome and Oslo. Use the tool for each city once.")]
    made: list[tuple[str, str]] = []
    for _ in range(_MAX_STEPS):
        message, _reason = _answer(server, settings, talk, [WEATHER])
        calls = message.get("tool_calls") or []
        if not calls:
            break
        talk.append(_assistant(message))
        for call in calls:
            name, arguments = _call(call)
            made.append((name, json.dumps(arguments, sort_keys=True)))
            talk.append(_result(call, {"sky": "clear", "celsius": 20}))
    else:
        raise _Failed(
            f"{len(made)} calls and no end, {len(made) - len(set(made))} of them repeated",
            "the model does not see that its calls were answered: compare the chat template and the tool parser",
        )
    repeated = len(made) - len(set(made))
    if repeated:
        raise _Failed(
            f"{len(made)} calls where 3 would do, {repeated} of them repeated",
            "long jobs will take many times the calls they need; a parser made for the model may mend it",
        )
    if len(set(made)) < 3:
        raise _Failed(f"{len(made)} calls where 3 were asked for", "the model answers without looking")
    return f"{len(made)} calls, none repeated"


FIRST: Mapping[str, Probe] = {"health": _health, "models": _models}
BASIC: Mapping[str, Probe] = {"chat": _chat, "tool": _tool, "streaming": _stream}
TOOLS: Mapping[str, Probe] = {
    "typed-arguments": _typed,
    "selection": _selection,
    "parallel-calls": _parallel,
    "multi-turn": _multi_turn,
    "tool-choice-none": _none,
    "escaping": _escaping,
    "streamed-call": _stream_tool,
    "repeated-calls": _repeats,
}


def _function(name: str, about: str, **properties: Json) -> Json:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}


_TEXT: Json = {"type": "string"}
WEATHER = _function("get_weather", "The weather in a city right now", city=_TEXT)
BOOK = _function(
    "book_table",
    "Book a table in a restaurant",
    restaurant=_TEXT,
    people={"type": "integer"},
    outdoors={"type": "boolean"},
    slot={"type": "string", "enum": ["noon", "evening"]},
    notes={"type": "array", "items": _TEXT},
)
CONVERT = _function(
    "convert_currency",
    "Convert an amount of money; currencies as ISO codes such as EUR",
    amount={"type": "number"},
    source=_TEXT,
    target=_TEXT,
)
SAVE = _function("save_text", "Save a text as it is", text=_TEXT)


def _user(text: str) -> Json:
    return {"role": "user", "content": text}


def _assistant(message: Json) -> Json:
    return {"role": "assistant", "content": message.get("content") or "", "tool_calls": message["tool_calls"]}


def _result(call: Json, answer: Json) -> Json:
    return {"role": "tool", "tool_call_id": call.get("id"), "content": json.dumps(answer)}


def _body(settings: Settings, talk: Sequence[Json], tools: Sequence[Json] = (), **more: Any) -> Json:
    body: Json = {"model": settings.model, "messages": list(talk), "max_tokens": settings.max_tokens, **more}
    if tools:
        body["tools"] = list(tools)
    return body


def _answer(
    server: Server, settings: Settings, talk: Sequence[Json], tools: Sequence[Json] = (), **more: Any
) -> tuple[Json, str]:
    answer = server.post(_CHAT, _body(settings, talk, tools, **more))
    try:
        choice = answer["choices"][0]
        return dict(choice["message"]), str(choice.get("finish_reason"))
    except (KeyError, IndexError, TypeError):
        raise ServerError(200, "the answer holds no message", where=server.url + _CHAT) from None


def _calls(server: Server, settings: Settings, text: str, tools: Sequence[Json]) -> list[tuple[str, Json]]:
    message, _ = _answer(server, settings, [_user(text)], tools)
    return _calls_of(message)


def _calls_of(message: Json) -> list[tuple[str, Json]]:
    _no_tags(message.get("content") or "")
    return [_call(call) for call in message.get("tool_calls") or ()]


def _call(call: Json) -> tuple[str, Json]:
    function = call.get("function") or {}
    return str(function.get("name")), _arguments(function.get("arguments") or "")


def _arguments(text: str) -> Json:
    try:
        found = json.loads(text)
    except ValueError:
        raise _Failed(f"arguments that are no JSON: {text[:80]!r}", "the tool parser does not fit the model") from None
    if not isinstance(found, dict):
        raise _Failed(f"arguments that are no object: {text[:80]!r}", "the tool parser does not fit the model")
    return found


def _expect(calls: list[tuple[str, Json]], wanted: list[tuple[str, Json]]) -> None:
    if not calls:
        raise _Failed(
            "no tool was called", "no tool parser runs (--enable-auto-tool-choice --tool-call-parser), or it misses"
        )
    if sorted(map(_key, calls)) != sorted(map(_key, wanted)):
        raise _Failed(
            f"{_told(calls)} instead of {_told(wanted)}", "types, names or texts are lost between model and parser"
        )


def _key(call: tuple[str, Json]) -> str:
    return json.dumps(call, sort_keys=True)


def _told(calls: Sequence[tuple[str, Json]]) -> str:
    return ", ".join(f"{name}({json.dumps(arguments, ensure_ascii=False)})" for name, arguments in calls)


def _reasoning(message: Json) -> str:
    return str(message.get("reasoning") or message.get("reasoning_content") or "")


def _clean(message: Json, settings: Settings) -> None:
    content = message.get("content") or ""
    _no_tags(content)
    if not content.strip() and not message.get("tool_calls"):
        raise _Failed(
            "the answer has no content",
            f"reasoning counts towards max_tokens and took all {settings.max_tokens}: --max-tokens"
            if _reasoning(message)
            else "the model ends at once: the chat template does not fit it",
        )


def _no_tags(content: str) -> None:
    found = [tag for tag in TAGS if tag in content]
    if found:
        raise _Failed(
            f"{' and '.join(found)} stand in the content",
            "the server was started without a parser that takes them out: --reasoning-parser, --tool-call-parser",
        )
