"""The addresses of this room's pages."""

from django.urls import path

from approvals.views.account import account
from approvals.views.approval import approval, approve, deny
from approvals.views.doubt import give_up, happened, run_again
from approvals.views.inbox import inbox
from approvals.views.people import people
from approvals.views.session import home, login, logout

urlpatterns = [
    path("", home, name="home"),
    path("login/", login, name="login"),
    path("logout/", logout, name="logout"),
    path("account/", account, name="account"),
    path("people/", people, name="people"),
    path("inbox/", inbox, name="inbox"),
    path("a/<uuid:approval>/", approval, name="approval"),
    path("a/<uuid:approval>/approve/", approve, name="approve"),
    path("a/<uuid:approval>/deny/", deny, name="deny"),
    path("a/<uuid:approval>/settle/happened/", happened, name="happened"),
    path("a/<uuid:approval>/settle/run-again/", run_again, name="run_again"),
    path("a/<uuid:approval>/settle/give-up/", give_up, name="give_up"),
]
