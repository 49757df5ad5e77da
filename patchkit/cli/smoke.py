"""``patchkit smoke``: does the server really serve?"""

from __future__ import annotations

import click

from patchkit.cli import render
from patchkit.stack.openai import Server
from patchkit.stack.smoke import Check, Settings, smoke


@click.command()
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="The server.")
@click.option("--model", default="", help="The name that it must serve; without it the first one listed.")
@click.option("--tools", is_flag=True, help="Every kind of tool calling, and a count of repeated calls.")
@click.option("--reasoning", is_flag=True, help="The model reasons, and must give that separately.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=4096, show_default=True, help="Reasoning included.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="How often each check runs.")
@click.option("--timeout", type=click.FloatRange(min=1), default=600.0, show_default=True, help="Seconds a wait.")
@click.option("--key", envvar="PATCHKIT_API_KEY", default="", help="API key, better in PATCHKIT_API_KEY.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    url: str,
    model: str,
    tools: bool,
    reasoning: bool,
    max_tokens: int,
    repeat: int,
    timeout: float,
    key: str,
    as_json: bool,
) -> int:
    """Ask a server a few things and tell what each failure means.

    \b
    Examples:
      patchkit smoke --url http://localhost:8000
      patchkit smoke --model flint --reasoning --tools --repeat 10
    """
    checks = []
    for check in smoke(Server(url, timeout, key), Settings(model, max_tokens, reasoning), tools=tools, repeat=repeat):
        checks.append(check)
        if not as_json:
            show(check)
    failed = [check for check in checks if check.outcome == "failed"]
    if as_json:
        findings = [
            {"id": each.id, "severity": "error", "what": each.what, "where": url, "evidence": "", "remedy": each.means}
            for each in failed
        ]
        render.print_json(render.document("smoke", checks=[each.as_json() for each in checks], findings=findings))
    return 1 if failed else 0


def show(check: Check) -> None:
    """One line a check; a failure has a second one that says what it means."""
    count = f" {check.passes}/{check.runs}" if check.runs > 1 else ""
    click.echo(render.clean(f"{check.outcome}{count}  {check.id}  {check.seconds:.2f} s  {check.what}"))
    if check.means:
        click.echo(render.clean(f"  means: {check.means}"))
