"""The page of a prompt: a version is saved, labelled and proposed, and another admin puts it in production."""

from django.contrib.auth.models import User
from django.test import Client

from agents.sdk import prompt
from approvals.rules.policy import Group
from tests.support import seeds
from tests.support.pages import has, log_in, shows, text_of
from tests.support.released import released
from tests.support.seeds import Cast
from tests.support.specs import spec_of

NAME = "hr/welcome"
PAGE = f"/prompts/{NAME}/"
CODE, FIRST = "In production: the text in the code", "In production: version 1"


def test_two_admins_put_a_version_in_production_and_take_it_back(admin: Client, cast: Cast) -> None:
    released(spec_of("welcomer", instructions=prompt(NAME, "Welcome {name}.")))
    seeds.person("anne", Group.ADMINS)
    anne = log_in(User.objects.get(username="anne"))
    shows(admin, "/prompts/", PAGE)
    shows(admin, PAGE, CODE, "Welcome {name}.")
    wrong = admin.post(PAGE, {"text": "Welcome {level}.", "note": "Kinder."})
    has(text_of(wrong, 422), "Nothing was changed.", "Welcome {level}.", 'value="Kinder."')
    saved = admin.post(PAGE, {"text": "Welcome {name}!", "note": "<Louder>."}, follow=True)
    has(text_of(saved), "Version 1", "&lt;Louder&gt;.", "by <bdi>admin</bdi>")
    admin.post(f"{PAGE}1/label/", {"label": "staging"})
    admin.post(f"{PAGE}1/propose/")
    shows(
        admin, PAGE, CODE, ">staging</span>", "proposed by <bdi>admin", hides=["Confirm version 1"]
    )
    shows(anne, PAGE, "Confirm version 1")
    anne.post(f"{PAGE}1/confirm/")
    shows(anne, PAGE, FIRST, hides=["Confirm version 1"])
    anne.post(f"{PAGE}0/propose/")
    shows(anne, PAGE, FIRST, hides=["Confirm the text in the code"])
    admin.post(f"{PAGE}0/confirm/")
    shows(admin, PAGE, CODE)
