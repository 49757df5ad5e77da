"""Which settings of an environment are those under which a series must not be used.

Also part of a program that travels into containers as text: Python 3.8 or newer, standard library only, ASCII.
"""


def refused_settings(env: "dict[str, str]", refused: "list[tuple[str, list[str], str]]") -> "list[tuple[str, str]]":
    """Name and sentence for each of ``refused`` that ``env`` has.

    ``refused`` holds name, values and why, as a manifest's ``refused_env`` does: a variable set to an empty text counts
    where no values are named, and upper and lower case of a value are one, since programs that read a switch lower it
    first. No other variable's value is told.
    """
    found = []
    for name, values, why in refused:
        value = env.get(name)
        if value is not None and (not values or value.lower() in [each.lower() for each in values]):
            found.append((name, f"{name}={value}: {why}"))
    return found


def setting_remedy(name: str) -> str:
    """What to do about one that was found."""
    places = "docker run: -e, --env-file; compose: environment, env_file; the image: ENV, its start script"
    return f"take {name} out of where it is set ({places}), then make the container anew"
