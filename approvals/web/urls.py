"""The addresses of this room's pages."""

from django.urls import path, register_converter

from approvals.governance.subscriptions import Act
from approvals.web.api import slack
from approvals.web.pages import directories, notices, people, second_factors
from approvals.web.pages.account import (
    account,
    add_own_token,
    change_password,
    choose_time,
    end_absence,
    log_out_everywhere,
    revoke_own_token,
    save_own_profile,
    set_absence,
)
from approvals.web.pages.agents_outside import (
    add_instance,
    add_provisioner_token,
    end_instance,
    instances,
    revoke_provisioner_token,
)
from approvals.web.pages.allowances import allow, allowance, allowances
from approvals.web.pages.allowances import confirm as confirm_allowance
from approvals.web.pages.allowances import revoke as revoke_allowance
from approvals.web.pages.batch import batch, undo_batch
from approvals.web.pages.history import download, download_evidence
from approvals.web.pages.history import show as history
from approvals.web.pages.inbox import delete_view, inbox, mine, save_view
from approvals.web.pages.navigation import search
from approvals.web.pages.notices import (
    add_subscription,
    change_subscription,
    retry_message,
    subscription,
    subscriptions,
)
from approvals.web.pages.overview import costs, overview, picture_csv
from approvals.web.pages.people import activity
from approvals.web.pages.policies import (
    change_draft,
    export,
    policies,
    propose,
    try_draft,
    withdraw,
)
from approvals.web.pages.policies import confirm as confirm_policy
from approvals.web.pages.policies import deciders as policy_deciders
from approvals.web.pages.policies import version as policy_version
from approvals.web.pages.prompts import PromptName, prompt, prompts, try_prompt
from approvals.web.pages.prompts import confirm as confirm_prompt
from approvals.web.pages.prompts import label as label_prompt
from approvals.web.pages.prompts import propose as propose_prompt
from approvals.web.pages.prompts import withdraw as withdraw_prompt
from approvals.web.pages.session import (
    callback,
    choose_password,
    connect,
    disconnect,
    home,
    link_slack,
    login,
    logout,
    start,
)
from approvals.web.pages.version_changes import continue_runs, version_changes, withdraw_change
from approvals.web.request.approval import approval
from approvals.web.request.decision import decide, undo
from approvals.web.request.edit import edit, previewed_edit
from approvals.web.request.teamwork import (
    ask,
    claim,
    comment,
    extend,
    hand_over,
    here,
    release,
    write,
)
from runtime.core.values.verdicts import VERDICTS

register_converter(PromptName, "prompt")

urlpatterns = [
    path("", home, name="home"),
    path("overview/", overview, name="overview"),
    path("overview/<slug:name>.csv", picture_csv, name="picture_csv"),
    path("costs/", costs, name="costs"),
    path("search/", search, name="search"),
    path("login/", login, name="login"),
    path("login/oidc/<slug:provider>/", start, name="oidc_start"),
    path("login/oidc/<slug:provider>/callback/", callback, name="oidc_callback"),
    path("login/second/", second_factors.second_factor, name="second_factor"),
    path("login/passkey/", second_factors.passkey_options, name="passkey_options"),
    path("logout/", logout, name="logout"),
    path("password/<str:plain>/", choose_password, name="choose_password"),
    path("account/", account, name="account"),
    path("account/password/", change_password, name="change_password"),
    path("account/sign-in/", connect, name="connect_sign_in"),
    path("slack/actions", slack.take_action, name="slack_actions"),
    path("slack/commands", slack.take_command, name="slack_commands"),
    path("slack/link/<str:token>/", link_slack, name="link_slack"),
    path("account/sign-in/disconnect/", disconnect, name="disconnect_sign_ins"),
    path("account/second/", second_factors.step_up, name="step_up"),
    path("account/second/passkey/", second_factors.add_passkey, name="add_passkey"),
    path("account/second/app/", second_factors.add_app, name="add_app"),
    path("account/second/codes/", second_factors.renew_codes, name="renew_codes"),
    path(
        "account/second/<uuid:factor>/remove/", second_factors.remove_factor, name="remove_factor"
    ),
    path("account/profile/", save_own_profile, name="save_own_profile"),
    path("account/time/", choose_time, name="choose_time"),
    path("account/notices/", notices.notices, name="notices"),
    path("account/notices/add/", notices.add_channel, name="add_channel"),
    path("account/notices/hours/", notices.save_hours, name="save_hours"),
    path("account/notices/<uuid:channel>/", notices.change_channel, name="change_channel"),
    path("account/notices/<uuid:channel>/test/", notices.test_channel, name="test_channel"),
    path("account/notices/<uuid:channel>/remove/", notices.remove_channel, name="remove_channel"),
    path("account/log-out-everywhere/", log_out_everywhere, name="log_out_everywhere"),
    path("account/tokens/add/", add_own_token, name="add_own_token"),
    path("account/tokens/<str:token>/revoke/", revoke_own_token, name="revoke_own_token"),
    path("account/away/", set_absence, name="set_absence"),
    path("away/<str:person>/end/", end_absence, name="end_absence"),
    path("people/", people.people, name="people"),
    path("people/add/", people.add_person, name="add_person"),
    path("people/groups/add/", people.add_group, name="add_group"),
    path("people/<str:person>/groups/", people.set_groups, name="set_groups"),
    path("people/<str:person>/disable/", people.disable, name="disable"),
    path("people/<str:person>/enable/", people.enable, name="enable"),
    path("people/<str:person>/link/", people.make_link, name="make_link"),
    path("people/<str:person>/second/reset/", people.reset_factors, name="reset_factors"),
    path("people/<str:person>/profile/", people.save_profile, name="save_profile"),
    path("people/<str:person>/activity/", activity, name="activity"),
    path("people/<str:person>/rights/<str:right>/confirm/", people.confirm, name="confirm_right"),
    path(
        "people/<str:person>/tokens/<str:token>/revoke/", people.revoke_token, name="revoke_token"
    ),
    path("instances/", instances, name="instances"),
    path("instances/add/", add_instance, name="add_instance"),
    path("instances/<uuid:instance>/end/", end_instance, name="end_instance"),
    path("instances/tokens/add/", add_provisioner_token, name="add_provisioner_token"),
    path(
        "instances/tokens/<str:token>/revoke/",
        revoke_provisioner_token,
        name="revoke_provisioner_token",
    ),
    path("directories/", directories.directories, name="directories"),
    path("directories/tokens/add/", directories.add_token, name="add_directory_token"),
    path(
        "directories/tokens/<str:token>/revoke/",
        directories.revoke_token,
        name="revoke_directory_token",
    ),
    path("directories/mappings/add/", directories.add_mapping, name="add_mapping"),
    path("directories/mappings/change/", directories.change_mapping, name="change_mapping"),
    path("subscriptions/", subscriptions, name="subscriptions"),
    path("subscriptions/add/", add_subscription, name="add_subscription"),
    path("subscriptions/<uuid:subscription_id>/", subscription, name="subscription"),
    *(
        path(
            f"subscriptions/<uuid:subscription_id>/{act}/",
            change_subscription,
            {"act": act},
            name=f"{act}_subscription",
        )
        for act in Act
    ),
    path(
        "subscriptions/<uuid:subscription_id>/retry/<uuid:message>/",
        retry_message,
        name="retry_message",
    ),
    path("policies/", policies, name="policies"),
    path("policies/deciders/", policy_deciders, name="policy_deciders"),
    path("policies/draft/", change_draft, name="change_policy_draft"),
    path("policies/try/", try_draft, name="try_policy"),
    path("policies/add/", propose, name="propose_policy"),
    path("policies/<int:number>/", policy_version, name="policy_version"),
    path("policies/<int:number>.yaml", export, name="export_policy"),
    path("policies/<int:number>/confirm/", confirm_policy, name="confirm_policy"),
    path("policies/<int:number>/withdraw/", withdraw, name="withdraw_policy"),
    path("prompts/", prompts, name="prompts"),
    path("prompts/<prompt:name>/<int:number>/propose/", propose_prompt, name="propose_prompt"),
    path("prompts/<prompt:name>/<int:number>/confirm/", confirm_prompt, name="confirm_prompt"),
    path("prompts/<prompt:name>/<int:number>/withdraw/", withdraw_prompt, name="withdraw_prompt"),
    path("prompts/<prompt:name>/<int:number>/label/", label_prompt, name="label_prompt"),
    path("prompts/<prompt:name>/<int:number>/try/", try_prompt, name="try_prompt"),
    path("prompts/<prompt:name>/", prompt, name="prompt"),
    path("allowances/", allowances, name="allowances"),
    path("allowances/<uuid:allowance_id>/", allowance, name="allowance"),
    path("allowances/<uuid:allowance_id>/confirm/", confirm_allowance, name="confirm_allowance"),
    path("allowances/<uuid:allowance_id>/revoke/", revoke_allowance, name="revoke_allowance"),
    path("version-changes/", version_changes, name="version_changes"),
    path("version-changes/continue/", continue_runs, name="continue_runs"),
    path("version-changes/withdraw/", withdraw_change, name="withdraw_change"),
    path("inbox/", inbox, name="inbox"),
    path("mine/", mine, name="mine"),
    path("inbox/views/add/", save_view, name="save_view"),
    path("inbox/views/<uuid:view>/delete/", delete_view, name="delete_view"),
    path("decisions/", history, name="history"),
    path("decisions.csv", download, {"format": "csv"}, name="history_csv"),
    path("decisions.jsonl", download, {"format": "jsonl"}, name="history_jsonl"),
    path("batch/", batch, name="batch"),
    path("batch/undo/", undo_batch, name="undo_batch"),
    path("a/<uuid:approval_id>/", approval, name="approval"),
    *(
        path(
            f"a/<uuid:approval_id>/{rule.address}/", decide, {"verdict": verdict}, name=rule.address
        )
        for verdict, rule in VERDICTS.items()
        if rule.by_person
    ),
    path("a/<uuid:approval_id>/evidence/", download_evidence, name="evidence"),
    path("a/<uuid:approval_id>/ask/", ask, name="ask"),
    path("a/<uuid:approval_id>/write/", write, name="write"),
    path("a/<uuid:approval_id>/extend/", extend, name="extend"),
    path("a/<uuid:approval_id>/edit/", edit, name="edit"),
    path("a/<uuid:approval_id>/edit/<uuid:preview>/", previewed_edit, name="previewed_edit"),
    path("a/<uuid:approval_id>/allow/", allow, name="allow"),
    path("a/<uuid:approval_id>/undo/", undo, name="undo"),
    path("a/<uuid:approval_id>/comment/", comment, name="comment"),
    path("a/<uuid:approval_id>/claim/", claim, name="claim"),
    path("a/<uuid:approval_id>/release/", release, name="release_claim"),
    path("a/<uuid:approval_id>/hand-over/", hand_over, name="hand_over"),
    path("a/<uuid:approval_id>/here/", here, name="here"),
]
