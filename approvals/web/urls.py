"""The addresses of this room's pages."""

from django.urls import path, register_converter

from approvals.governance.subscriptions import Act
from approvals.web.api import slack
from approvals.web.pages import (
    account,
    agents_outside,
    allowances,
    batch,
    directories,
    history,
    inbox,
    navigation,
    notices,
    overview,
    people,
    policies,
    prompts,
    second_factors,
    session,
    version_changes,
)
from approvals.web.request import approval, decision, edit, teamwork
from runtime.core.values.verdicts import VERDICTS

register_converter(prompts.PromptName, "prompt")

urlpatterns = [
    path("", session.redirect_home, name="home"),
    path("overview/", overview.show_overview, name="overview"),
    path("overview/<slug:name>.csv", overview.download_picture, name="picture_csv"),
    path("costs/", overview.show_costs, name="costs"),
    path("search/", navigation.show_search, name="search"),
    path("login/", session.login, name="login"),
    path("login/oidc/<slug:provider>/", session.start, name="oidc_start"),
    path("login/oidc/<slug:provider>/callback/", session.finish_log_in, name="oidc_callback"),
    path("login/second/", second_factors.ask_second_factor, name="second_factor"),
    path("login/passkey/", second_factors.answer_passkey_options, name="passkey_options"),
    path("logout/", session.end_session, name="logout"),
    path("password/<str:plain>/", session.choose_password, name="choose_password"),
    path("account/", account.account, name="account"),
    path("account/password/", account.change_password, name="change_password"),
    path("account/sign-in/", session.connect, name="connect_sign_in"),
    path("slack/actions", slack.take_action, name="slack_actions"),
    path("slack/commands", slack.take_command, name="slack_commands"),
    path("slack/link/<str:token>/", session.link_slack, name="link_slack"),
    path("account/sign-in/disconnect/", session.disconnect, name="disconnect_sign_ins"),
    path("account/second/", second_factors.step_up, name="step_up"),
    path("account/second/passkey/", second_factors.add_passkey, name="add_passkey"),
    path("account/second/app/", second_factors.add_app, name="add_app"),
    path("account/second/codes/", second_factors.renew_codes, name="renew_codes"),
    path(
        "account/second/<uuid:factor>/remove/", second_factors.remove_factor, name="remove_factor"
    ),
    path("account/profile/", account.save_own_profile, name="save_own_profile"),
    path("account/time/", account.choose_time, name="choose_time"),
    path("account/notices/", notices.notices, name="notices"),
    path("account/notices/add/", notices.add_channel, name="add_channel"),
    path("account/notices/hours/", notices.save_hours, name="save_hours"),
    path("account/notices/<uuid:channel>/", notices.change_channel, name="change_channel"),
    path("account/notices/<uuid:channel>/test/", notices.test_channel, name="test_channel"),
    path("account/notices/<uuid:channel>/remove/", notices.remove_channel, name="remove_channel"),
    path("account/log-out-everywhere/", account.log_out_everywhere, name="log_out_everywhere"),
    path("account/tokens/add/", account.add_own_token, name="add_own_token"),
    path("account/tokens/<str:token>/revoke/", account.revoke_own_token, name="revoke_own_token"),
    path("account/away/", account.set_absence, name="set_absence"),
    path("away/<str:person>/end/", account.end_absence, name="end_absence"),
    path("people/", people.people, name="people"),
    path("people/add/", people.add_person, name="add_person"),
    path("people/groups/add/", people.add_group, name="add_group"),
    path("people/<str:person>/groups/", people.set_groups, name="set_groups"),
    *(
        path(f"people/<str:person>/{address}/", people.change, {"act": name}, name=name)
        for name, (address, _, _) in people.ACTS.items()
    ),
    path("people/<str:person>/link/", people.make_link, name="make_link"),
    path("people/<str:person>/profile/", people.save_profile, name="save_profile"),
    path("people/<str:person>/activity/", people.show_activity, name="activity"),
    path("people/<str:person>/rights/<str:right>/confirm/", people.confirm, name="confirm_right"),
    path(
        "people/<str:person>/tokens/<str:token>/revoke/", people.revoke_token, name="revoke_token"
    ),
    path("instances/", agents_outside.instances, name="instances"),
    path("instances/add/", agents_outside.add_instance, name="add_instance"),
    path("instances/<uuid:instance>/end/", agents_outside.end_instance, name="end_instance"),
    path(
        "instances/tokens/<str:token>/revoke/",
        agents_outside.revoke_provisioner_token,
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
    path("subscriptions/", notices.subscriptions, name="subscriptions"),
    path("subscriptions/add/", notices.add_subscription, name="add_subscription"),
    path("subscriptions/<uuid:subscription_id>/", notices.subscription, name="subscription"),
    *(
        path(
            f"subscriptions/<uuid:subscription_id>/{act}/",
            notices.change_subscription,
            {"act": act},
            name=f"{act}_subscription",
        )
        for act in Act
    ),
    path(
        "subscriptions/<uuid:subscription_id>/retry/<uuid:message>/",
        notices.retry_message,
        name="retry_message",
    ),
    path("policies/", policies.show_policies, name="policies"),
    path("policies/deciders/", policies.show_deciders, name="policy_deciders"),
    path("policies/draft/", policies.change_draft, name="change_policy_draft"),
    path("policies/try/", policies.try_draft, name="try_policy"),
    path("policies/add/", policies.propose, name="propose_policy"),
    path("policies/<int:number>/", policies.show_version, name="policy_version"),
    path("policies/<int:number>.yaml", policies.export, name="export_policy"),
    *(
        path(f"policies/<int:number>/{act}/", policies.change, {"act": act}, name=f"{act}_policy")
        for act in policies.ACTS
    ),
    path("prompts/", prompts.show_prompts, name="prompts"),
    *(
        path(
            f"prompts/<prompt:name>/<int:number>/{act}/",
            prompts.change,
            {"act": act},
            name=f"{act}_prompt",
        )
        for act in prompts.ACTS
    ),
    path("prompts/<prompt:name>/<int:number>/label/", prompts.label_version, name="label_prompt"),
    path("prompts/<prompt:name>/<int:number>/try/", prompts.try_prompt, name="try_prompt"),
    path("prompts/<prompt:name>/", prompts.show_prompt, name="prompt"),
    path("allowances/", allowances.show_allowances, name="allowances"),
    path("allowances/<uuid:allowance_id>/", allowances.allowance, name="allowance"),
    path("allowances/<uuid:allowance_id>/confirm/", allowances.confirm, name="confirm_allowance"),
    path("allowances/<uuid:allowance_id>/revoke/", allowances.revoke, name="revoke_allowance"),
    path("version-changes/", version_changes.show_version_changes, name="version_changes"),
    path("version-changes/continue/", version_changes.continue_runs, name="continue_runs"),
    path("version-changes/withdraw/", version_changes.withdraw_change, name="withdraw_change"),
    path("inbox/", inbox.show_inbox, name="inbox"),
    path("mine/", inbox.show_own_requests, name="mine"),
    path("inbox/views/add/", inbox.save_view, name="save_view"),
    path("inbox/views/<uuid:view>/delete/", inbox.delete_view, name="delete_view"),
    path("decisions/", history.show, name="history"),
    path("decisions.csv", history.download, {"format": "csv"}, name="history_csv"),
    path("decisions.jsonl", history.download, {"format": "jsonl"}, name="history_jsonl"),
    path("batch/", batch.batch, name="batch"),
    path("batch/undo/", batch.undo_batch, name="undo_batch"),
    path("a/<uuid:approval_id>/", approval.show_approval, name="approval"),
    *(
        path(
            f"a/<uuid:approval_id>/{rule.address}/",
            decision.decide,
            {"verdict": verdict},
            name=rule.address,
        )
        for verdict, rule in VERDICTS.items()
        if rule.by_person
    ),
    path("a/<uuid:approval_id>/evidence/", history.download_evidence, name="evidence"),
    path("a/<uuid:approval_id>/ask/", teamwork.ask, name="ask"),
    path("a/<uuid:approval_id>/write/", teamwork.write, name="write"),
    path("a/<uuid:approval_id>/extend/", teamwork.extend, name="extend"),
    path("a/<uuid:approval_id>/edit/", edit.edit, name="edit"),
    path(
        "a/<uuid:approval_id>/edit/<uuid:preview>/", edit.show_previewed_edit, name="previewed_edit"
    ),
    path("a/<uuid:approval_id>/allow/", allowances.allow, name="allow"),
    path("a/<uuid:approval_id>/undo/", decision.undo, name="undo"),
    path("a/<uuid:approval_id>/comment/", teamwork.add_comment, name="comment"),
    path("a/<uuid:approval_id>/claim/", teamwork.claim, name="claim"),
    path("a/<uuid:approval_id>/release/", teamwork.release, name="release_claim"),
    path("a/<uuid:approval_id>/hand-over/", teamwork.hand_over, name="hand_over"),
    path("a/<uuid:approval_id>/here/", teamwork.show_presence, name="here"),
]
