"""What is masked in errors and logs, and what is left: a mask too many hides what somebody has to read."""

import re
import sys
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fencepost.core import secret_forms
from fencepost.core.secrets import has_no_secret, is_secret, scrub
from fencepost.core.texts import end

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
AWS_ID = "AKIAIOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

# Where a secret stands: {} is one word of letters and digits.
PLACES = [
    "pass={}",
    "DB_PASS={}",
    "dbpass = {}",
    "{{'pass': '{}'}}",
    "PGPASSWORD={} psql -h db",
    "MYSQL_PWD={} mysql",
    "host=h password='{0} {0}' user=x",
    "host=h password='{0}\\' {0}' user=x",
    "'host=h password=\\'{0} {0}\\' user=x'",
    "host=h password='{0} {0}",  # cut off
    "invalid password: '{}'",
    "password=SecretStr('{}')",
    "Config(password=bytearray(b'{}'), n=1)",
    "password={}",
    "password%3D{}%26day%3D3",
    "https://h/login?next=%2Fx%3Fpassword%3D{}%26day%3D3",
    "password%253D{}%2526day",
    "%7B%22password%22%3A%20%22{}%22%7D",
    "https://h/r?to=redis%3A%2F%2Fu%3A{}%40cache%2F0",
    "sig={}",
    "https://blob/x?sv=1&sig={}&se=2",
    "https://s3/x?X-Amz-Signature={}",
    "https://app/callback?code={}&scope=a",
    "GET /oauth2/cb?code={} HTTP/1.1",
    "https://app/in?state=xyz&code={}",
    "grant_type=authorization_code&code={}&redirect_uri=x",
    "mysql -u root -p {} shop",
    "mysqldump -uroot -p{} shop > x",
    "mariadb-dump -p'{0} {0}' shop",
    "['mysql', '-u', 'root', '-p{}', 'shop']",
    "['mariadb', '-p', '{}', 'shop']",
    "['load', '--password', '{}', '--day', '3']",
    "load --db-password '{0} {0}' --day 3",
    "redis-cli -a {} ping",
    "sshpass -p {} ssh host",
    "curl -u app:{} https://h/",
    "postgres://u:{}@h1,h2/db",
    "postgres://u:{0}@h1:1,u2:{0}@h2:2/db",
    "mongodb+srv://u:{}%40x@h1,h2/db",
    "redis://:{}@h",
    "amqps://u%3A{}@h",
    "https://{}@github.com/x.git",
    "Authorization: Bearer {}",
    "Proxy-Authorization: Basic {}",
    "{{'Authorization': 'Bearer {}', 'Accept': 'x'}}",
    "{{b'X-Api-Key': b'{}', b'n': 1}}",
    "[[b'authorization', b'{}'], [b'n', b'1']]",
    "Headers([('x-vault-token', '{}')])",
    "b'password={} user=x'",
    '\'{{"user": {{"password": "{}"}}}}\'',
    '"{{\\"auth\\": \\"{{\\\\\\"password\\\\\\": \\\\\\"{}\\\\\\"}}\\"}}"',
    "SET PASSWORD FOR app = PASSWORD('{}')",
    "ALTER ROLE app PASSWORD '{0}''{0}'",
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{0}\n{0}\n-----END RSA PRIVATE KEY-----",
    "'-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----\\n'",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n{}",  # cut off
    "{0}\n{0}\n-----END RSA PRIVATE KEY-----",  # its beginning was cut off
    "ghp_{0}{0}",
    "xoxb-{0}-{0}",
    "https://hooks.slack.com/services/T0/B0/{}",
]
# Begun by a letter, lest it be taken for the number of something, and no word of the texts around it.
SECRETS = st.from_regex(r"[G-Z][G-Z0-9]{11,40}", fullmatch=True)


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=10)  # of each place
@given(secret=SECRETS)
@example(secret="G0000000000000000000")
def test_no_piece_of_a_secret_survives(place: str, secret: str) -> None:
    before, after = "it said: ", "\nand the job went on"
    kept = scrub(before + place.format(secret) + after)
    pieces = {secret[at : at + 6] for at in range(len(secret) - 5)}
    assert not [piece for piece in pieces if piece in kept], kept
    if "cut off" not in place and not place.startswith(("{", "-----BEGIN OPENSSH")):
        assert kept.startswith(before)
        assert kept.endswith(after)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"token is {JWT}.", "token is ***."),
        (f"-{JWT}-x", "-***"),
        (f"{AWS_ID} {AWS_SECRET}", "*** ***"),
        (f"('{AWS_ID}', '{AWS_SECRET}')", "('***', '***')"),
        (f"{AWS_ID} at 6f1ed002ab5595859014ebf0951522d9ccddeeff", "*** at 6f1ed002ab5595859014ebf0951522d9ccddeeff"),
        ("{'password': 's3', 'n': 1}", "{'password': ***, 'n': 1}"),
        ("{'password': b's3', b'n': 1}", "{'password': ***, b'n': 1}"),
        ("[('password', 's3'), ('n', 1)]", "[('password', ***), ('n', 1)]"),
        ("password=SecretStr('x y'), n=1", "password=***, n=1"),
        ("postgres://u:p@h1,h2/db", "postgres://u:***@h1,h2/db"),
        ("https://app/callback?code=abc123&state=xyz", "https://app/callback?code=***&state=xyz"),
        ("mysql -P 3306 -p s3 shop", "mysql -P 3306 -p *** shop"),
        ("İ password=x y", "İ password=*** y"),
        ("a password=b&password=c d", "a password=***&password=*** d"),
        ("x -----BEGIN PRIVATE KEY-----\na\n-----END PRIVATE KEY----- y", "x *** y"),
        ("password=password=x", "password=***"),
        ("Authorization: Bearer abcdefgh12", "Authorization: ***"),
    ],
)
def test_what_stands_around_a_secret_is_left(text: str, clean: str) -> None:
    assert scrub(text) == clean


TOKENS = """
glpat-{20} gho_{20} ghp_{20} ghs_{20} ghu_{20} ghr_{20} github_pat_{20} xoxb-{10} xoxe.{10} xapp-{10} rk_live_{10}
sk_test_{10} sk_live_{10} rk_test_{10} sk-{20} whsec_{10} npm_{30} pypi-{20} AIza{35} ya29.{20} SG.{16}.{16}
hooks.slack.com/services/{10} AKIA{16} ASIA{16} eyJ{10}.{10}.{10}
"""
NAMES = """
password passwd pwd passphrase secret signature credential cookie authorization api_key accesskey private-key sig pass
signing_key shared_key accountkey id_token token=x&token code_verifier dbpass https://h/?key /callback?state&code
"""
OTHERS = """
a://u:Z9@h  https://Z9@h  amqps%3A%2F%2Fu%3AZ9%40h  bearer Z9Z9Z9Z9  basic Z9Z9Z9Z9  identified by 'Z9'  x-api-key: Z9
mysql -pZ9  mariadb -pZ9  mongo -p Z9  redis-cli -a Z9  valkey-cli -a Z9  curl -u a:Z9  sqlcmd -P Z9  ldapsearch -w Z9
--db-key Z9  <Secret>Z9</Secret>  ('api_key', 'Z9')
"""
ALONE = [
    *(re.sub(r"{(\d+)}", lambda size: ("Z9" * 20)[: int(size[1])], word) for word in TOKENS.split()),
    *(f"{name}=Z9Z9" for name in NAMES.split()),
    *re.split(r"  |\n", OTHERS.strip()),
]


@pytest.mark.parametrize("text", ALONE)
def test_a_secret_is_found_where_nothing_else_looks_like_one(text: str) -> None:
    """A text is only searched if it contains one of some words: none of them may be missing."""
    assert "Z9" not in scrub(f"it said {text}")


@pytest.mark.parametrize("name", ["_NAME_IN_URL", "_CODED_URL", "_SETTING", "_HEADER", "_BEARER", "_KNOWN"])
@settings(max_examples=100)
@given(made=st.data())
def test_no_text_in_which_a_form_finds_a_secret_is_left_unsearched(name: str, made: st.DataObject) -> None:
    pattern = vars(secret_forms)[name]
    backtracking = re.compile(re.sub(r"(?<=[+*}?])\+", "", pattern.pattern), pattern.flags)
    text = made.draw(st.text(max_size=5)) + made.draw(st.from_regex(backtracking)) + made.draw(st.text(max_size=5))
    low = text.replace("İ", "i").lower()
    if any(True for form in secret_forms.FORMS for _ in form(text, low)):
        assert not has_no_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "passed=3 failed=0 passes=2 bypass=yes compass=north",
        "pass=12 fail=0",
        "{'pass': True, 'fail': 3}",
        "pass 3 of 4; first pass: 3 rows; the pass: done",
        "exit code=404 and state=failed",
        "https://shop/x?code=404&day=3",
        "https://shop/x?code=DE&state=CA",
        "https://shop/x?code=WINTER26&day=3",
        "https://app/callback?error=access_denied&state=xyz",
        "http_code=200 zip code=12345 errcode=1045",
        "sig=15 sig=SIGTERM signal=9 design=3 significant=1",
        "ssh -p 22 host && mkdir -p /var/lib/mysql",
        "docker run -p 8080:80 mysql",
        "docker compose -f mysql.yml -p shop up",
        "psql -p 5432 -U app",
        "cd mysql; mkdir -p x",
        "mysql -p",
        "mysql --host db -u root",
        "curl -u app https://h:443/",
        "tokens=3 secretary=Ann passport=x keyboard=us",
        "missing 'password' and 'user'",
        "['token', 'user']",
        "wrong signature: f(x, y)",
        "no such secret: db",
        "a%3Db%26passed%3D3",
        "http://h/?u=http%3A%2F%2Fhost%3A80%2Fx",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "eyJhbGciOiJIUzI1NiJ9 alone, and eyJ.a.b",
        "AKIA is how they begin; TAKIAIOSFODNN7EXAMPLES is a word",
        "SELECT password, secret FROM users WHERE id = 3",
        "password must not be empty",
        "mail@host and http://host:80/path",
        "token=1794733205004021 lock=x",
    ],
)
def test_ordinary_words_are_left(text: str) -> None:
    assert scrub(text) == text


ORDINARY = "passed passing compass bypass code state signal design tokens keys secretary author cookies_seen key pass"


@given(st.lists(st.tuples(st.sampled_from(ORDINARY.split()), st.integers(0, 999)), min_size=1, max_size=20))
def test_counts_of_anything_are_left(counts: list[tuple[str, int]]) -> None:
    text = " ".join(f"{name}={count}" for name, count in counts)
    assert scrub(text) == text


@given(st.text(max_size=300))
def test_masking_twice_is_masking_once(text: str) -> None:
    once = scrub(text)
    assert scrub(once) == once


def test_small_letters_take_the_places_of_the_large_ones() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert len(every.replace("İ", "i").lower()) == len(every)
    assert scrub("İ" * 10 + " password=s3cret " + "İ" * 10) == "İ" * 10 + " password=*** " + "İ" * 10


def test_a_key_that_the_cut_begins_in_is_masked() -> None:
    text = "-----BEGIN PRIVATE KEY-----\n" + "S3CRETS3CRET\n" * 900 + "-----END PRIVATE KEY-----\nthe end"
    assert "S3CRET" not in end(text, 400)
    assert end(text, 400).endswith("the end")


@pytest.mark.parametrize("name", ["password", "DB_PASSWORD", "x-api-key", "Authorization", "set-cookie", "sslpassword"])
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["passed", "key", "user", "author", "secrets_read", "code", "lock"])
def test_names_of_other_things(name: str) -> None:
    assert not is_secret(name)


HOSTILE = r"""
://a:  ://a:_@  https://a  http://aaaa@  %3a%2f%2fa%3a  ://a%3a  a@  token=  password='  pass="\
password=\'a  password=[  password=f('  ('token',"  ['token',_'  (  (_  \n_  \na:_  <a  <token_  <password>
--  x--  --a-  --key  mysql_-p  mysql_'  curl_-u_a  -p  bearer____  x-a  x-token:  ?code=abcd
&code=abcd&state=  oauth?code=  eyJ  eyJ-  eyJaaaaaaaaa.  sk-  A  \  \"  -----BEGIN_
-----BEGIN_PRIVATE_KEY-----  -----END_PRIVATE_KEY-----  AKIAIOSFODNN7EXAMPLE  AKIAIOSFODNN7EXAMPLE_
password%3D  identified_with_a_  identified_by_'  password%25  password_  secret'  sig  -pass  _  x
the_quick_brown_fox_passed=3_
"""


@pytest.mark.parametrize("hostile", [word.replace("_", " ").replace("\\n", "\n") for word in HOSTILE.split()])
@pytest.mark.parametrize("last", ["", "@", "'"])
def test_a_long_hostile_line_takes_time_in_proportion_to_its_length(hostile: str, last: str) -> None:
    line = hostile * (100_000 // len(hostile)) + last
    before_s = time.thread_time()
    scrub(line)
    # A hundred thousand characters take 0.02 s, and the worst 0.04 s. An expression that looks back from every place at
    # all that went before takes a minute, and nobody who tests would wait for it.
    assert time.thread_time() - before_s < 2
