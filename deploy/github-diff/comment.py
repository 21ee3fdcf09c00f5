"""Keep one comment in a pull request: comment.py FILE, in the environment of the action."""

import json
import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

PAGE = 100
TIMEOUT = 30


def call(method: str, path: str, body: Any = None) -> Any:
    """Return the response of the API of GitHub."""
    request = Request(  # noqa: S310 -- the address that GitHub sets
        f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['TOKEN']}",
            "Accept": "application/vnd.github+json",
            "Content-Type": "application/json",
        },
    )
    with urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310
        return json.load(response)


def comments(path: str) -> Iterator[dict[str, Any]]:
    """Yield the comments of the pull request, page by page."""
    for page in count(1):
        found = call("GET", f"{path}?per_page={PAGE}&page={page}")
        yield from found
        if len(found) < PAGE:
            return


def main() -> None:
    """Write the comment, or update the one with the same first line; a token without the right only warns."""
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    marker, path = text.partition("\n")[0], f"issues/{os.environ['NUMBER']}/comments"
    try:
        known = next(
            (
                one["id"]
                for one in comments(path)
                if (one["body"] or "").startswith(marker)
            ),
            None,
        )
        if known is None:
            call("POST", path, {"body": text})
        else:
            call("PATCH", f"issues/comments/{known}", {"body": text})
    except (
        URLError
    ) as error:  # as for pull requests of forks, whose token may only read
        sys.stdout.write(f"::warning::The comment was not written: {error}\n")


main()
