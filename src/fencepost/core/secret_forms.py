"""The forms in which secrets occur in texts, and functions that find them.

Every function takes the text and a lower-case copy of the same length, and returns the spans to mask. Spans may
overlap; the caller merges them.

Running time matters, because an attacker could try to stop a node with a long text. No expression looks at a character
more than a limited number of times: repetitions are possessive or bounded, and expressions begin with letters rather
than with repetitions or assertions, so that most positions are rejected at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

Span = tuple[int, int]
Form = Callable[[str, str], Iterator[Span]]

# -- names and values ----------------------------------------------------------------------------------------------

_PLAIN = r"(?:\d{1,3}|true|false|null|none|ok|yes|no)\b"  # the result of a test or a pass, not a password
# A fencing token is not a secret, and neither is the number of a pass; a signal is not a signature.
_NAMES = rf"""
    (?: password | passwd | pwd | passphrase | secret | signature | credentials? | cookie | authorization
      | (?:api|access|secret|account|private|signing|shared)[_-]?key
      | key (?: (?<=[?&]key) | (?<=%3fkey) | (?<=%26key) )
      | (?:access|refresh|auth|api|session|security|id)[_-]?token | token (?! (?:\s*=\s*|%3d)\d+\b )
      | code[_-]verifier
      | sig (?<! [a-z0-9]sig ) (?! \s*=\s*(?:\d{{1,3}}\b|sig[a-z]) )
      | pass (?<! [a-z0-9]pass ) (?! ["']?\s*[=:]\s*["']?{_PLAIN} ) | (?:user|db|smtp|ftp|root|admin)pass
    )
"""
_IN_SINGLE = r"(?: '[^'\\]{0,2000}+(?:\\.[^'\\]{0,2000}+){0,200}+' )"
_IN_DOUBLE = r'(?: "[^"\\]{0,2000}+(?:\\.[^"\\]{0,2000}+){0,200}+" )'
_QUOTED = rf"(?: [bruf]{{0,2}}{_IN_SINGLE} | [bruf]{{0,2}}{_IN_DOUBLE} )"
# A quoted text inside another: its quotes are escaped, and those inside it are escaped twice.
_ESCAPED = r"""(?: (?P<escape>\\{1,7}["']) (?: [^\\]{1,2000}+ | (?!(?P=escape))\\{1,15}+["']? ){0,200}+ (?P=escape) )"""
_CALL = rf"""(?: [a-z_][\w.]{{0,60}}+\( (?: [^()'"\n]{{1,200}}+ | {_QUOTED} ){{0,20}}+ \)? )"""
_VALUE = rf"""
    (?: {_QUOTED} | {_ESCAPED} | \[[^\]]{{1,1000}}+\] | \{{[^}}]{{1,1000}}+\}} | \([^)]{{1,1000}}+\) | {_CALL}
      | ["'](?=[^\s"',;:)])[^\n"']{{1,1000}}+                                     # no closing quote: truncated
      | (?:(?:bearer|basic|token|digest|negotiate)\s++)?[^\s&,;)'"]++ )
"""
# A URL inside a URL: password%3Ds3cret%26day%3D3, or with %253D; also JSON inside a URL.
_END_OF_CODED = r"(?:25){0,3}(?:0a|0d|20|22|26|2c|3b|7d)"
_CODED = rf"(?: (?: [^\s&%\"'<>,;]++ | %(?!{_END_OF_CODED}) )++ )"

_ENDS_AS_A_NAME = re.compile(rf"(?x) {_NAMES} $")


def is_secret(name: str) -> bool:
    """Whether a value with this name is a secret, as ``DB_PASSWORD`` and ``x-api-key`` are; ``token`` may be either."""
    return _ENDS_AS_A_NAME.search(name.lower()) is not None


def _each(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    return (match.span("secret") for match in pattern.finditer(text))


def _each_named(pattern: re.Pattern[str], low: str) -> Iterator[Span]:
    return (match.span("secret") for match in pattern.finditer(low) if _ENDS_AS_A_NAME.search(match["name"]))


# -- URLs ----------------------------------------------------------------------------------------------------------

_COLON = r"%(?:25){0,3}3a"
_AT = r"%(?:25){0,3}40"
_PASSWORD_BEGINS = re.compile(rf"://(?:[^\s:/?#@%]|%(?!(?:25){{0,3}}3a)){{0,200}}+(?::|{_COLON})")
_BLANK = re.compile(r"\s")
_NAME_IN_URL = re.compile(r"https?://(?P<secret>[^\s:/?#@]{1,500}+)@")
_CODED_URL = re.compile(
    rf"""(?x)
    {_COLON} (?:%(?:25){{0,3}}2f){{2}} (?: [^\s&%]{{1,200}}+ | %(?!(?:25){{0,3}}(?:2f|3a|40)) ){{0,20}}+ {_COLON}
    (?P<secret> (?: [^\s&%]{{1,1000}}+ | %(?!(?:25){{0,3}}40) ){{0,100}}+ ) {_AT}
    """
)
_FAR = 2000  # long enough for the tokens that some cloud providers use as passwords


def _of_urls(_text: str, low: str) -> Iterator[Span]:
    """Find passwords in URLs, and user names without a password, because tokens are often given that way.

    The span reaches to the last @ of the word: a password that was not encoded may contain an @ or a slash, and each of
    several hosts may have a password. A port followed by a path with an @ is masked too, to be on the safe side.
    """
    place = 0
    while begins := _PASSWORD_BEGINS.search(low, place):
        place = begins.end()
        at = low.find("@", place)
        if at < 0:
            break
        if at > place + _FAR:  # too far for every URL up to this position
            place = max(place, at - _FAR - 300)
            continue
        blank = _BLANK.search(low, place, place + _FAR)
        end = low.rfind("@", place, blank.start() if blank else place + _FAR + 1)
        if end >= 0:
            yield place, end
            place = end
    yield from _each(_NAME_IN_URL, low)
    yield from _each(_CODED_URL, low)


_CODE = re.compile(r"(?:[?&]|%3f|%26)code(?:=|%3d)(?P<secret>[^\s&#%\"'<>,;)\]}]{4,}+)")
_OF_OAUTH = ("callback", "oauth", "openid", "grant_type", "redirect_uri", "client_id", "state=", "state%3d")


def _of_oauth(_text: str, low: str) -> Iterator[Span]:
    """Find authorization codes: in a query that also has a state, or in a path that names OAuth."""
    if "code" not in low or not any(word in low for word in _OF_OAUTH):
        return
    for match in _CODE.finditer(low):
        start, end = match.span("secret")
        around = low[max(0, start - 500) : start].rsplit(maxsplit=1)[-1] + low[end : end + 500].partition(" ")[0]
        if any(word in around for word in _OF_OAUTH):
            yield start, end


# -- named values --------------------------------------------------------------------------------------------------

_SETTING = re.compile(
    rf"""(?xs)
    {_NAMES}
    (?: (?: \s*+=\s*+ | \\{{0,7}}["']\s*+:\s*+ ) (?P<value>{_VALUE})
      | : [ ]{{0,3}} (?: (?<=word:) | (?<=word:[ ]) | (?<=wd:) | (?<=wd:[ ]) ) (?P<quoted>{_QUOTED})
      | (?:%(?:25){{0,3}}22)? %(?:25){{0,3}}3[ad] (?:%(?:25){{0,3}}2[02]){{0,3}} (?P<coded>{_CODED}) )
    """
)
_PAIR = re.compile(
    rf"""(?xs) [(\[] \s*+ b?["'] (?P<name>[\w-]{{1,80}}+) ["'] \s*+,\s*+ (?P<secret>{_QUOTED}) (?=\s*+[)\]])"""
)
_OF_HEADERS = ("authorization", "cookie", "-token", "-key")
_LINE = re.compile(r"^[ \t-]{0,40}+(?P<name>[\w.-]{1,80}+):[ ]++(?P<secret>\S{1,1000}+)$", re.MULTILINE)
_ELEMENT = re.compile(r"<(?P<name>[\w:.-]{1,80}+)(?=[\s>])[^<>]{0,200}+>(?P<secret>[^<]{1,1000}+)")


def _of_settings(_text: str, low: str) -> Iterator[Span]:
    """Find ``password=…``, ``"password": …``, ``password: '…'`` and ``password%3D…``."""
    for match in _SETTING.finditer(low):
        kind = match.lastgroup or "value"
        yield match.span(kind)


def _of_pairs(_text: str, low: str) -> Iterator[Span]:
    """Find ``('password', '…')`` and ``['authorization', '…']``, but not a list of column names."""
    for match in _PAIR.finditer(low):
        if low[match.start()] == "[" and not match["name"].endswith(_OF_HEADERS):
            continue
        if _ENDS_AS_A_NAME.search(match["name"]):
            yield match.span("secret")


def _of_lines(_text: str, low: str) -> Iterator[Span]:
    """Find ``password: …`` on a line of its own, as in YAML."""
    for start, end in _each_named(_LINE, low):
        if not low[start:end].isdigit():
            yield start, end


def _of_elements(_text: str, low: str) -> Iterator[Span]:
    """Find ``<password>…</password>``."""
    return _each_named(_ELEMENT, low)


_STATEMENT = re.compile(
    r"(?:password|identified(?:\s++with\s++\S{1,60}+)?\s++by(?:\s++password)?)(?:\s++|\()(?P<secret>'(?:[^']|''){1,1000}+')"
)
_HEADER = re.compile(
    r"(?:authorization|x-[a-z-]{0,40}+(?:(?<=token)|(?<=api-key))|cookie)\s*+:\s*+"
    r"(?P<secret>(?:digest|oauth)\s[^\r\n]{1,4000}+|[^\r\n'\"]{1,4000}+)"
)
_BEARER = re.compile(r"(?:bearer|basic)\s++(?=\S{0,100}\d|\S{20})(?P<secret>[\w.~+/=-]{8,4000}+)")


def _of_statements(_text: str, low: str) -> Iterator[Span]:
    """Find passwords in SQL statements."""
    return _each(_STATEMENT, low)


def _of_headers(_text: str, low: str) -> Iterator[Span]:
    """Find credentials in HTTP headers, and ``Bearer …`` elsewhere."""
    yield from _each(_HEADER, low)
    yield from _each(_BEARER, low)


# -- commands ------------------------------------------------------------------------------------------------------

_OPTION = re.compile(
    rf"""(?xs) (?<!-)--(?P<name>[a-z][\w-]{{1,60}}+) (?: [ ]++ | ["']\s*+,\s*+ ) (?P<secret>{_QUOTED}|[^\s-]\S*+)"""
)
_NAMES_OF_OPTIONS = ("password", "passphrase", "passwd", "pass", "secret", "token", "key")
_COMMAND = re.compile(
    r"(?P<program>mysql|mariadb|mongo|sshpass|redis-cli|valkey-cli|curl|sqlcmd|ldap)[\w-]{0,20}+(?=[\s'\"])[^\n|;&]{1,1000}+"
)
_GAP = r"""(?: [ ]++ | ["']\s*+,\s*+["'] )"""
_WORD = r"""(?: '[^'\n]{1,500}+' | "[^"\n]{1,500}+" | [^\s'",)\]]++ )"""


def _beside(option: str) -> re.Pattern[str]:
    return re.compile(rf"(?xs) (?<=[\s'\"]){option} {_GAP}? (?![\s-]) (?P<secret>{_WORD})")


_AFTER_A_NAME = rf"""(?xs) (?<=[\s'"])-u {_GAP}? (?![\s-]) [^\s:'"]{{1,200}}+ : (?P<secret>[^\s'",]++)"""
_OF_PROGRAMS = {
    **dict.fromkeys(("mysql", "mariadb", "mongo", "sshpass"), _beside("-p")),
    **dict.fromkeys(("redis-cli", "valkey-cli"), _beside("-a")),
    "sqlcmd": _beside("-P"),
    "ldap": _beside("-w"),
    "curl": re.compile(_AFTER_A_NAME),
}


def _of_commands(text: str, low: str) -> Iterator[Span]:
    """Find ``--password …``, and ``-p…`` of programs for which it is a password, and not a port or a path."""
    for match in _OPTION.finditer(low):
        if match["name"].endswith(_NAMES_OF_OPTIONS):
            yield match.span("secret")
    for command in _COMMAND.finditer(low):
        pattern = _OF_PROGRAMS[command["program"]]
        yield from (match.span("secret") for match in pattern.finditer(text, *command.span()))


# -- secrets with a known form -------------------------------------------------------------------------------------

_KNOWN = re.compile(
    r"""(?x)
    (?: eyJ[\w-]{8,4000}+ (?P<rest>\.[\w-]{8,8000}+\.[\w-]{0,4000}+(?:\.[\w-]{1,4000}+){0,3})?       # a JSON web token
      | glpat-[\w-]{20,255} | gh[opsur]_\w{20,255} | github_pat_\w{20,255} | xox[abeprs][.-][\w.-]{10,255} |
        xapp-[\w-]{10,255}
      | [sr]k_(?:live|test)_\w{10,255} | sk-[\w-]{20,255} | whsec_[\w/+=]{10,255}
      | npm_\w{30,255} | pypi-[\w-]{20,255} | AIza[\w-]{35} | ya29\.[\w.-]{20,2000} | SG\.[\w-]{16,64}\.[\w-]{16,64}
      | hooks\.slack\.com/services/[\w/]{10,255}
    )
    """
)
_KEY_OF_AWS = re.compile(r"A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])")
_SECRET_OF_AWS = re.compile(r"(?<![\w/+])(?=[^A-Z]{0,39}[A-Z])(?P<secret>[A-Za-z0-9/+]{40})(?![\w/+=])")


def _of_known_forms(text: str, _low: str) -> Iterator[Span]:
    """Find tokens that can be recognized by their form, including all parts of a JSON web token."""
    for match in _KNOWN.finditer(text):
        start, end = match.span()
        is_word = start == 0 or not (text[start - 1].isalnum() or text[start - 1] == "_")
        if is_word and (not match[0].startswith("eyJ") or match["rest"]):
            yield start, end


def _of_aws(text: str, _low: str) -> Iterator[Span]:
    """Find AWS access key ids, and the secret that follows one. The secret alone looks like any hash."""
    for match in _KEY_OF_AWS.finditer(text):
        yield match.span()
        if secret := _SECRET_OF_AWS.search(text, match.end(), match.end() + 120):
            yield secret.span("secret")


_PEM_BEGINS = re.compile(r"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_ENDS = re.compile(r"-----END[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_CODED_BACKWARDS = re.compile(r"(?:[\w+/=\s]|[nr]?\\)*+")
_LONGEST_PEM = 32_000  # characters; as much is masked of a key whose beginning or end is missing


def _of_private_keys(text: str, _low: str) -> Iterator[Span]:
    """Find private keys, also if the beginning or the end is missing."""
    if "PRIVATE KEY" not in text:
        return
    first = _PEM_ENDS.search(text)
    if first and not _PEM_BEGINS.search(text, 0, first.start()):
        before = text[max(0, first.start() - _LONGEST_PEM) : first.start()][::-1]
        matched = _CODED_BACKWARDS.match(before)
        yield first.start() - (matched.end() if matched else 0), first.end()
    place = 0
    while begins := _PEM_BEGINS.search(text, place):
        ends = _PEM_ENDS.search(text, begins.end(), begins.end() + _LONGEST_PEM)
        place = ends.end() if ends else min(begins.end() + _LONGEST_PEM, len(text))
        yield begins.start(), place


FORMS: tuple[Form, ...] = (
    _of_urls,
    _of_oauth,
    _of_settings,
    _of_pairs,
    _of_lines,
    _of_elements,
    _of_statements,
    _of_headers,
    _of_commands,
    _of_known_forms,
    _of_aws,
    _of_private_keys,
)

# -- texts in which no form can occur --------------------------------------------------------------------------------

_NEEDED = (  # one of these stands in every text in which a form finds something
    *("://", "%"),  # URLs, and what is percent-encoded
    *("pass", "pwd", "secret", "sig", "credential", "cookie", "authorization", "key", "token", "code"),  # names
    *("identified", "bearer", "basic"),
    *("mysql", "mariadb", "mongo", "redis-cli", "curl", "sqlcmd", "ldap"),  # beside sshpass and valkey-cli
    *("eyj", "glpat-", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_", "xox", "xapp-", "k_live_", "k_test_"),
    *("sk-", "whsec_", "npm_", "pypi-", "aiza", "ya29.", "sg.", "slack.com", "akia", "asia"),
)


def may_contain(low: str) -> bool:
    """Whether any form may occur in a text in lower case. To find out takes a tenth of what it takes to search it."""
    return any(map(low.__contains__, _NEEDED))
