"""An authenticator app of a person, as their phone has it."""

import base64
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from approvals import clock
from approvals.people import second_factors
from tests.support.pages import text_of
from tests.support.seeds import PASSWORD


@dataclass(frozen=True, slots=True, kw_only=True)
class Phone:
    """The app, and the recovery codes on a sheet of paper."""

    key: str
    recovery: tuple[str, ...] = ()

    def code(self, later: int = 0) -> str:
        """The code of now, or of some periods later."""
        totp = TOTP(base64.b32decode(self.key), 6, SHA1(), 30)  # noqa: S303
        return totp.generate(int(clock.read_time().timestamp()) + later * 30).decode()


def phone_of(person: str) -> Phone:
    """Give a person an app. The code before the present one is the one that was used to add it."""
    new = second_factors.generate_app(person)
    phone = Phone(key=new.key)
    codes = second_factors.add_app(person, "Phone", new.sealed, phone.code(-1), keep="")
    return Phone(key=new.key, recovery=tuple(codes))


def give_password(browser: Any, person: str, page: str = "") -> Any:
    return browser.post(
        f"/login/?next={page}", {"username": person, "password": PASSWORD, "next": page}
    )


def give_code(browser: Any, code: str) -> Any:
    return browser.post("/login/second/", {"code": code})


def page_of(answer: Any) -> str:
    return text_of(answer, answer.status_code)
