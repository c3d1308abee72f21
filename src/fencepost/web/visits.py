"""One request, as a page sees it: who asks, what for, and how to write links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fencepost.errors import InvalidParameters
from fencepost.web.headers import FRAGMENT
from fencepost.web.zones import ZoneChoice

if TYPE_CHECKING:
    from fencepost.access import Authorized
    from fencepost.web.guard import Passing

MOST_FIELDS = 200  # bounds the parsing of any query or form; REST takes as many parameters of a run (`Params`)


@dataclass(slots=True)
class Visit:
    """A request that the guard let through. `ask` are the operations as far as the caller is allowed to use them."""

    passing: Passing
    root_path: str
    path: str
    where: Mapping[str, Any]
    query: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict)
    form_list: tuple[tuple[str, str], ...] = ()

    @property
    def ask(self) -> Authorized:
        """The operations, under the rights of the caller."""
        entry = self.passing.entry
        if entry is None:
            raise RuntimeError("a page without a right asked for the ledger")
        return entry.authorized

    @property
    def zone(self) -> ZoneChoice:
        """The zone in which times are shown."""
        return ZoneChoice.named(self.query.get("tz", ""))

    @property
    def is_fragment(self) -> bool:
        """Whether our script asks for the part of the page that changes."""
        return self.passing.headers.get(FRAGMENT) == "1"

    def url(self, path: str, **query: Any) -> str:
        """Return the address of a page of ours, with the zone that is shown; what is None or empty is left out.

        `path` may contain names of jobs and the like: use `segment` for them.
        """
        said = {name.rstrip("_"): str(value) for name, value in query.items() if value not in (None, "")}
        if "tz" not in said and self.query.get("tz"):
            said["tz"] = self.query["tz"]
        return f"{self.root_path}{path}" + (f"?{urlencode(said)}" if said else "")

    def address(self, path: str) -> str:
        """Return the whole address of a path, as a program elsewhere would ask for it."""
        scheme = "https" if self.passing.is_https else "http"
        return f"{scheme}://{self.passing.headers.get('host', 'localhost')}{path}"

    def request(self, path: str, **query: Any) -> str:
        """Return the whole address of a request to REST, for programs: without the zone that is shown here."""
        return self.address(f"{self.root_path}/api/v1{path}" + (f"?{urlencode(query)}" if query else ""))

    def here(self, **changes: Any) -> str:
        """Return the address of this page with some of its query changed; None takes a part away."""
        said: dict[str, Any] = {**self.query, **changes}
        kept = {name: str(value) for name, value in said.items() if value not in (None, "")}
        return f"{self.root_path}{self.path}" + (f"?{urlencode(kept)}" if kept else "")

    def text(self, name: str, *, longest: int = 1_000) -> str:
        """Return a field of the form; empty if it is not there."""
        value = self.form.get(name, "").strip()
        if len(value) > longest:
            raise InvalidParameters(f"{name} has {len(value)} characters; {longest} are allowed")
        return value


def segment(name: object) -> str:
    """Return a name as one part of a path: a slash in it stays part of the name."""
    return quote(str(name), safe="")


def read_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Read a query or a form; refuse one with too many fields."""
    try:
        return tuple(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="replace"))
    except ValueError:
        raise InvalidParameters(f"a form has at most {MOST_FIELDS} fields") from None


def first_of_each(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the fields by their names; of several with one name, the first."""
    read: dict[str, str] = {}
    for name, value in pairs:
        read.setdefault(name, value)
    return read


def local_target(target: str, root_path: str) -> str:
    """Return where to go after logging in: a page of ours, or the first one if it is anything else."""
    start = f"{root_path}/"
    if not target.startswith(start) or target.startswith("//") or "\\" in target or not target.isprintable():
        return start
    try:
        parts = urlsplit(target)
    except ValueError:
        return start
    is_ours = not parts.scheme and not parts.netloc and "//" not in parts.path and "/../" not in f"{parts.path}/"
    return target if is_ours else start
