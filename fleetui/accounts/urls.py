"""Addresses of logging in and of one's own account.

Names that start with `account_`, `mfa_`, `socialaccount_` and `openid_connect_` are those of allauth. There
are no pages to sign up and to reset a password: that is for administrators and identity providers.
"""

from allauth.account import views as account_views
from allauth.mfa.base import views as mfa_views
from allauth.mfa.recovery_codes import views as code_views
from allauth.mfa.totp import views as totp_views
from allauth.mfa.webauthn import views as key_views
from django.contrib.auth.views import LogoutView
from django.urls import path, reverse_lazy
from django.views.generic import TemplateView

from fleetui.accounts import oidc, views

_FACTORS = "account/second-factor"


def _page(template: str) -> dict[str, str]:
    return {"template_name": f"accounts/{template}.html"}


urlpatterns = [
    path("login/", views.LoginView.as_view(), name="login"),
    path("login/", views.LoginView.as_view(), name="account_login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("logout/", LogoutView.as_view(), name="account_logout"),
    path(
        "login/second-factor/",
        views.SecondFactorView.as_view(),
        name="mfa_authenticate",
    ),
    path(
        "login/inactive/",
        TemplateView.as_view(**_page("inactive")),
        name="account_inactive",
    ),
    path("account/", views.account, name="account"),
    path(
        "account/sessions/end/", views.end_other_sessions, name="account_end_sessions"
    ),
    path(
        "account/sessions/<slug:session>/end/",
        views.end_session,
        name="account_end_session",
    ),
    path(
        "account/password/",
        views.PasswordView.as_view(),
        name="account_change_password",
    ),
    path(
        "account/confirm/",
        account_views.ReauthenticateView.as_view(**_page("confirm")),
        name="account_reauthenticate",
    ),
    path(
        "account/confirm/code/",
        mfa_views.ReauthenticateView.as_view(**_page("confirm_code")),
        name="mfa_reauthenticate",
    ),
    path(
        "account/confirm/key/",
        key_views.ReauthenticateWebAuthnView.as_view(**_page("confirm_key")),
        name="mfa_reauthenticate_webauthn",
    ),
    path(f"{_FACTORS}/", views.FactorsView.as_view(), name="mfa_index"),
    path(
        f"{_FACTORS}/app/",
        totp_views.ActivateTOTPView.as_view(**_page("app_add")),
        name="mfa_activate_totp",
    ),
    path(
        f"{_FACTORS}/app/remove/",
        totp_views.DeactivateTOTPView.as_view(**_page("app_remove")),
        name="mfa_deactivate_totp",
    ),
    path(
        f"{_FACTORS}/keys/new/",
        key_views.AddWebAuthnView.as_view(**_page("key_add")),
        name="mfa_add_webauthn",
    ),
    path(
        f"{_FACTORS}/keys/<int:pk>/remove/",
        key_views.RemoveWebAuthnView.as_view(
            success_url=reverse_lazy("mfa_index"), **_page("key_remove")
        ),
        name="mfa_remove_webauthn",
    ),
    path(
        f"{_FACTORS}/codes/",
        code_views.ViewRecoveryCodesView.as_view(**_page("codes")),
        name="mfa_view_recovery_codes",
    ),
    path(
        f"{_FACTORS}/codes/new/",
        code_views.GenerateRecoveryCodesView.as_view(**_page("codes_new")),
        name="mfa_generate_recovery_codes",
    ),
    path("oidc/<slug:provider_id>/login/", oidc.login, name="openid_connect_login"),
    path(
        "oidc/<slug:provider_id>/callback/",
        oidc.callback,
        name="openid_connect_callback",
    ),
    path(
        "oidc/canceled/",
        TemplateView.as_view(**_page("provider_canceled")),
        name="socialaccount_login_cancelled",
    ),
]
