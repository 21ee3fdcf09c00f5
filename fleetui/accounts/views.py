"""The pages of logging in and of one's own account; most are views of allauth with templates of our own."""

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from allauth.account import views as account_views
from allauth.account.decorators import reauthentication_required
from allauth.mfa.base import views as mfa_views
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import NON_FIELD_ERRORS
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse_lazy
from django.views.decorators.http import require_POST

from fleetui.access.tokens import revoke_all_tokens
from fleetui.accounts.attempts import WAIT_SECONDS
from fleetui.accounts.first_password import forget_first_password
from fleetui.accounts.forms import LoginForm
from fleetui.accounts.oidc import PROVIDER
from fleetui.accounts.second_factor import is_due_in_session
from fleetui.accounts.sessions import end_sessions, sessions_of


def refuse_too_many(request: HttpRequest) -> HttpResponse:
    response = render(request, "429.html", status=HTTPStatus.TOO_MANY_REQUESTS)
    response.headers["Retry-After"] = str(WAIT_SECONDS)
    return response


def mark_refused(response: HttpResponse, form: Form, field: str) -> HttpResponse:
    """Set the status of a refused form: 429 after too many attempts, 422 otherwise."""
    if form.has_error(field, "too_many_login_attempts"):
        response.status_code = HTTPStatus.TOO_MANY_REQUESTS
        response.headers["Retry-After"] = str(WAIT_SECONDS)
    else:
        response.status_code = HTTPStatus.UNPROCESSABLE_ENTITY
    return response


class LoginView(account_views.LoginView):
    template_name = "accounts/login.html"
    form_class = LoginForm

    def form_invalid(self, form: LoginForm) -> HttpResponse:
        return mark_refused(super().form_invalid(form), form, NON_FIELD_ERRORS)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs), "provider": settings.OIDC_NAME}


class SecondFactorView(mfa_views.AuthenticateView):
    template_name = "accounts/second_factor.html"

    def form_invalid(self, form: Form) -> HttpResponse:
        field = "code" if "code" in form.fields else "credential"
        return mark_refused(super().form_invalid(form), form, field)


class FactorsView(mfa_views.IndexView):
    """List one's own second factors, and say whether one is missing."""

    template_name = "accounts/factors.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {
            **super().get_context_data(**kwargs),
            "is_due": is_due_in_session(self.request),
        }


class PasswordView(account_views.PasswordChangeView):
    """Change one's own password; other sessions end."""

    template_name = "accounts/password.html"
    success_url = reverse_lazy("account")

    def form_valid(self, form: Any) -> HttpResponse:
        response: HttpResponse = super().form_valid(form)
        forget_first_password(self.request.user.get_username())
        if "revoke_tokens" in self.request.POST:
            count = revoke_all_tokens(
                self.request.user, by=self.request.user, now=datetime.now(UTC)
            )
            messages.success(self.request, f"API tokens revoked: {count}")
        return response


@login_required
def account(request: HttpRequest) -> HttpResponse:
    return render(
        request,
        "accounts/account.html",
        {
            "provider": settings.OIDC_NAME,
            "sessions": sessions_of(request.user, current=request.session.session_key),
            "connections": SocialAccount.objects.filter(
                user=request.user.pk, provider=PROVIDER
            ).order_by("pk"),
        },
    )


@require_POST
@login_required
@reauthentication_required
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    count = end_sessions(request.user, without=request.session.session_key)
    messages.success(request, f"Other sessions ended: {count}")
    return redirect("account")


@require_POST
@login_required
@reauthentication_required
def end_session(request: HttpRequest, session: str) -> HttpResponse:
    """End one of one's own sessions; the current one ends by logging out."""
    if not end_sessions(
        request.user, without=request.session.session_key, only=session
    ):
        raise Http404("You have no other session with this id.")
    messages.success(request, "Session ended")
    return redirect("account")
