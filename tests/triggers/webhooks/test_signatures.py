"""Signatures of deliveries: the examples of the specifications, and refused headers."""

from datetime import UTC, datetime, timedelta

import pytest

from runtime.triggers.signatures import InvalidSignature, Scheme, is_key, verify

AT = datetime.fromtimestamp(1614265330, UTC)
STANDARD = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,bm9uZQ== v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGl"
    b"gcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
# Scheme, secret, headers, body, time: the first three are those of their specifications.
EXAMPLES = {
    "standard": ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", STANDARD, b'{"test": 2432232314}', AT),
    "github": (
        "It's a Secret to Everybody",
        {
            "x-hub-signature-256": "sha256="
            "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        },
        b"Hello, World!",
        AT,
    ),
    "slack": (
        "8f742231b10e8888abcd99yyyzzz85a5",
        {
            "x-slack-request-timestamp": "1531420618",
            "x-slack-signature": "v0="
            "a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        },
        SLACK_BODY,
        datetime.fromtimestamp(1531420618, UTC),
    ),
    "stripe": (
        "whsec_test_secret_of_stripe",
        {
            "stripe-signature": "t=1614265330,v0=00,v1=00,v1="
            "2ef382c685b704c7297b20962e1b533478c94e4ccde705cb94b5ab32f1ce9e0d"
        },
        b'{"id": "evt_1"}',
        AT,
    ),
    "header": ("a secret of many characters", {"x-token": "a secret of many characters"}, b"", AT),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_verifies_and_nothing_like_it(name: str) -> None:
    secret, headers, body, at = EXAMPLES[name]
    scheme = Scheme(name)

    def check(**other: object) -> None:
        given = {"secret": secret, "headers": headers, "body": body, "now": at, **other}
        verify(scheme, header="x-token", **given)  # type: ignore[arg-type]

    for seconds in (-300, 0, 300):
        check(now=at + timedelta(seconds=seconds))
    wrong: list[dict[str, object]] = [
        {"headers": {}},
        {"secret": "d2hhdCBpcyBub3QgdGhlIHNlY3JldA=="},
    ]
    wrong += [{"headers": {**headers, one: headers[one][:-3] + "000"}} for one in headers]
    for value in ("\udcff é,=t", "²", "9" * 400):  # these are digits in Python
        wrong += [{"headers": {**headers, one: value}} for one in headers]
    if name != "header":
        wrong.append({"body": body + b" "})
    if name not in ("header", "github"):
        wrong += [{"now": at + timedelta(seconds=seconds)} for seconds in (-301, 301)]
    for other in wrong:
        with pytest.raises(InvalidSignature):
            check(**other)


def test_only_a_few_signatures_of_a_header_are_read() -> None:
    secret, headers, body, at = EXAMPLES["standard"]
    many = {**headers, "webhook-signature": "v1,bm9uZQ== " * 11 + headers["webhook-signature"]}
    with pytest.raises(InvalidSignature):
        verify(Scheme.STANDARD, secret, "", many, body, at)


@pytest.mark.parametrize(
    ("scheme", "secret", "fits"),
    [
        ("standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", True),
        ("standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw!", False),
        ("standard", "whsec_c2hvcnQ=", False),
        ("github", "It's a Secret to Everybody", True),
        ("github", "x" * 15, False),
        ("github", "x" * 16, True),
        ("github", "It's a Secret\nto Everybody", False),
        ("slack", "x" * 200, True),
        ("slack", "x" * 201, False),
    ],
)
def test_a_secret_has_a_shape(scheme: str, secret: str, fits: bool) -> None:
    assert is_key(Scheme(scheme), secret) is fits
