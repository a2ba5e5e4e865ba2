"""Secrets in texts: what is cut, what is left alone, and that no text takes long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.secret import GONE, command, in_shell, is_secret, local, values, variable, without

TOKEN = "f00b4r" * 7


def _words(text: str) -> list[str]:
    return text.split()


SECRETS = _words(
    "PASS PASSWORD SSHPASS DB_PASS PGPASSWORD MYSQL_PWD dbpwd pw user_pw TOKEN HF_TOKEN hfToken"
    " GITHUB_TOKEN KEY API_KEY apiKey AccountKey WANDB_API_KEY wandb-key x-api-key ssh_key KEY_2 SECRET"
    " client_secret CREDENTIALS GOOGLE_APPLICATION_CREDENTIALS COOKIE Set-Cookie AUTH HTTP_AUTH"
    " Authorization PASSPHRASE PASS_PHRASE GH_PAT SLACK_WEBHOOK_URL JWT AWS_ACCESS_KEY_ID"
    " AWS_SECRET_ACCESS_KEY REFRESH_TOKEN trainer.logger.api_key"
)
OTHERS = _words(
    "TOKENIZERS_PARALLELISM TOKENIZER KEYBOARD MASTER_PORT SSH_AUTH_SOCK PASSES num_passes MONKEY BYPASS"
    " COMPASS forward_pass AUTHOR GIT_AUTHOR_NAME XAUTHORITY SSH_ASKPASS PGPASSFILE KEY_FILE PWD OLDPWD"
    " PATH HOSTKEYS_DIR key_states past_key_values query_key pad_token eos_token max_tokens"
    " tokens_per_second TOKEN_TYPE HOTKEY missing_keys KeyError AuthenticationError WORLD_SIZE NCCL_DEBUG"
    " KRB5CCNAME keyword pattern path"
)


@pytest.mark.parametrize("name", SECRETS)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)
    assert variable(name, "correct horse") == "(secret, 13 characters)"
    assert local(name, "'correct horse'") == "(secret, 15 characters)"
    for text in (f"{name}=horses", f"{name}: horses", f"{{'{name}': 'horses'}}", f"('{name}', 'horses')"):
        assert "horses" not in without(text)
    assert "horses" not in " ".join(command([f"--{name}", "horses", f"--{name}=horses"]))


@pytest.mark.parametrize("name", OTHERS)
def test_names_that_only_look_like_those(name: str) -> None:
    assert not is_secret(name)
    assert variable(name, "horses") == "horses"
    assert without(f"{name}=horses {name}: horses") == f"{name}=horses {name}: horses"
    assert command([f"--{name}", "horses", f"{name}=horses"]) == [f"--{name}", "horses", f"{name}=horses"]


@pytest.mark.parametrize(
    "text",
    [
        f"WANDB_API_KEY={TOKEN}",
        f"export HF_TOKEN='{TOKEN}'",
        f'{{"password": "{TOKEN} {TOKEN}"}}',
        f"Authorization: Bearer {TOKEN}",
        f"authorization: Basic {TOKEN}==",
        f"GET https://ada:{TOKEN}@example.org/x",
        f"error: unrecognized arguments: --hf-token {TOKEN}",
        f"argv: train.py --api_key  {TOKEN} --steps 5",
        f"https://example.org/x?a=1&token={TOKEN}&b=2",
        f"https://s3.example.org/x?X-Amz-Signature={TOKEN}",
        f"reason: url=https://example.org?api_key={TOKEN}",
        f"401 for hf_{TOKEN}",
        f"login with ghp_{TOKEN} failed",
        f"eyJhbGciOiJI.{TOKEN}.sig",
        "wandb: 0123456789abcdef0123456789abcdef01234567",
        f"postgres://ada:{TOKEN}@db/x",
        f"redis://:{TOKEN}@h:6379/0",
        f"mongodb+srv://ada:{TOKEN}/@{TOKEN}@h",
        f"https://{TOKEN}@github.com/a/b",
        f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={TOKEN}==;EndpointSuffix=core.windows.net",
        f"https://a.blob.core.windows.net/c?sv=2022&sig={TOKEN}%3D",
        f"host=db password={TOKEN} user=ada",
        f"curl -u ada:{TOKEN} https://x",
        f"['curl', '-u', 'ada:{TOKEN}']",
        f"curl --user=ada:{TOKEN} https://x",
        f"sshpass -p {TOKEN} ssh h",
        f"docker login -u ada -p {TOKEN} registry",
        f"mysql -h db -p{TOKEN}",
        f"wandb login --relogin {TOKEN}",
        f"http -a ada:{TOKEN} https://x",
        f"machine github.com login ada password {TOKEN}",
        f"aws configure set aws_secret_access_key {TOKEN}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{TOKEN}\n-----END RSA PRIVATE KEY-----",
        f"https://hooks.slack.com/services/T0/B0/{TOKEN}",
        f"github_pat_{TOKEN}",
        f"glpat-{TOKEN}",
        f"xoxb-{TOKEN}",
        f"sk-ant-api03-{TOKEN}",
        f"Cookie: a={TOKEN}; b={TOKEN}",
        f"[('x-api-key', '{TOKEN}')]",
        f'("password", "{TOKEN}")',
        f'{{\\"api_key\\": \\"{TOKEN}\\"}}',
        f"'password': 'it\\'s {TOKEN}'",
        f"{{'auth': ('ada', '{TOKEN}'), 'n': 1}}",
        f"b'api_key=x', b'token': b'{TOKEN}'",
        f"os.environ['X_TOKEN'] = '{TOKEN}'",
        f"bearer {TOKEN}",
    ],
)
def test_what_looks_like_a_secret_is_cut(text: str) -> None:
    cut = without(text)
    assert TOKEN not in cut
    assert GONE in cut


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'model.layers.0.weight'",
        "RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB",
        "step 4 loss 0.7 tokens: 33104 tokens/s 33.1k",
        "train.py: error: argument --max-tokens: not allowed with --key-bits 512",
        "train.py --tokenizer gpt2 --steps 5 --auth --author ada",
        "AuthenticationError: 401 Unauthorized",
        "rank 13 has not reached all_reduce #4211",
        "cockpit logs otter --rank 13: its log",
        "https://example.org/x?a=1",
        "data.py:118 read_shard",
        "HEAD is at 0123456789abcdef0123456789abcdef01234567",
        "commit=0123456789abcdef0123456789abcdef01234567",
        "basic training started, bearer of bad news",
        "git clone ssh://git@github.com/x/y and http://proxy:3128/path@2x",
        "docker run -u 1000:1000 img python -u train.py --key-file k.pem --token-type bpe --max-tokens 512",
        "rank 0 at tcp://10.0.0.1:29500, mail ada@example.org",
        "pad_token='<pad>' eos_token: </s> missing_keys: ['a.weight'] hotkey: ctrl+k",
        "hf_transfer_enabled_long_name sk-learn-contrib-something task-aaaaaaaaaaaaaaaaaaaa",
    ],
)
def test_what_a_person_needs_stays(text: str) -> None:
    assert without(text) == text


def test_values_of_the_environment_are_cut_wherever_they_are() -> None:
    known = values({"MY_TOKEN": "correct horse", "PIN_KEY": "1", "HOME": "/home/ada"})
    assert (
        without("the horse is correct horse at /home/ada 1", known) == f"the horse is {GONE} at /home/ada 1"
    )


def test_an_access_key_and_what_belongs_to_it() -> None:
    text = "AKIAABCDEFGHIJKLMNOP wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY us-east-1"
    assert without(text) == f"{GONE} us-east-1"


GIVEN = {
    "MY_TOKEN": "s3ntinel/value+1",
    "DATABASE_URL": "postgres://ada:s3ntinel-db@h/x",
    "ARGS": "--hub-key s3ntinel-hub",
    "DEBUG_KEY": "true",
    "NUMBER_KEY": "12345678",
    "LOCK_KEY": "/home/ada/.ssh/id",
}


@pytest.mark.parametrize(
    "text",
    [
        "'s3ntinel/value+1'",
        "b's3ntinel/value+1'",
        "['x', ('s3ntinel/value+1', 2)]",
        "{'a': 's3ntinel/value+1'}",
        "'xs3ntinel/value+1y'",
        "'https://h/s3ntinel%2Fvalue%2B1'",
        "'a text that was cut s3ntinel/va...'",
        "'a text that was cut s3ntinel/va",
        "s3ntinel-db",
        "s3ntinel-hub",
    ],
)
def test_what_a_program_was_given_is_cut_under_any_name(text: str) -> None:
    known = values(GIVEN)
    for shown in (local("x", text, known), without(text, known), *command(["--x", text], known)):
        assert "s3ntinel" not in shown


def test_settings_numbers_and_paths_are_no_values_to_look_for() -> None:
    text = "true 12345678 /home/ada/.ssh/id ada postgres"
    assert without(text, values(GIVEN)) == text


@given(st.text(alphabet="ab=:'\"\\([{}]),;&@/ -_KEYtoken\n", max_size=80), st.sampled_from(SECRETS))
def test_whatever_is_around_it_a_value_that_is_known_is_cut(around: str, name: str) -> None:
    known = values({name: TOKEN})
    for text in (around + TOKEN, TOKEN + around, f"{around}{name}={TOKEN}{around}"):
        assert TOKEN not in without(text, known)


@given(st.text(max_size=200), st.sampled_from(SECRETS))
def test_a_quoted_value_is_cut_up_to_its_end(value: str, name: str) -> None:
    assert without(f"{{{name!r}: {'x' + value + TOKEN!r}, 'n': 1}}") == f"{{{name!r}: {GONE}, 'n': 1}}"


def test_what_was_cut_is_not_cut_again() -> None:
    text = f"password={GONE} {{'token': {GONE}}} --key {GONE} HF_TOKEN: (secret, 9 characters)"
    assert without(text) == text


@pytest.mark.parametrize(
    "line",
    [
        "key = jax.random.PRNGKey(0)",
        "token = os.environ['HF_TOKEN']",
        "f(token=args.token, key=key)",
        "q, k = self.key(x), value",
    ],
)
def test_a_line_of_a_program_keeps_its_names(line: str) -> None:
    assert without(line, code=True) == line


def test_a_line_of_a_program_loses_what_is_in_quotes() -> None:
    assert without("login(token='abc', auth=('ada', 'b'))", code=True) == f"login(token={GONE}, auth={GONE})"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("export TOKEN=abcdefgh", ["abcdefgh"]),
        ("module load cuda; export PASS='a b'", ["a b"]),
        ("export DATABASE_URL=postgres://u:p4ssw0rd@h/x", ["p4ssw0rd"]),
        ('export TOKEN=$(cat ~/.token) KEY=$KEY HF_TOKEN="${X:-y}" PASS=`cat p`', []),
        ("module load cuda; export TOKENIZERS_PARALLELISM=false; conda activate train", []),
    ],
)
def test_secrets_in_a_text_for_a_shell(text: str, found: list[str]) -> None:
    assert in_shell(text) == found


def test_each_line_of_a_value_is_cut() -> None:
    known = values({"DEPLOY_KEY": f"-----BEGIN\n  {TOKEN}\nshort\n"})
    assert without(f"cannot parse {TOKEN}: short", known) == f"cannot parse {GONE}: short"


@pytest.mark.parametrize(
    "text",
    [
        "--key " * 2000,
        "--key  " + "-" * 9000,
        "a:" * 5000,
        'a="' * 5000,
        "a" * 10_000,
        "://" * 5000,
        "bearer " * 2000,
    ],
)
def test_no_text_is_too_deep(text: str) -> None:
    assert len(without(text)) <= 2 * len(text)
