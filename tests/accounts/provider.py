"""An identity provider (OpenID Connect) made with Authlib: `python -m tests.accounts.provider SECRET`.

It prints its port. Who logs in next is what was posted to `/claims`; an empty object cancels the login.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from authlib.oauth2.rfc6749 import (
    AuthorizationServer,
    ClientMixin,
    OAuth2Error,
    OAuth2Request,
)
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core.grants import OpenIDCode
from joserfc.jwk import KeySet, RSAKey

CLIENT_ID = "fleetui"
CALLBACK = "http://testserver/oidc/oidc/callback/"
KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
STATE: dict[str, Any] = {"claims": {}, "info": {}, "foreign_key": False}
CODES: dict[str, Any] = {}
TOKENS: dict[str, dict[str, Any]] = {}


class Client(ClientMixin):
    """The console, as the provider knows it."""

    def get_client_id(self) -> str:
        return CLIENT_ID

    def get_default_redirect_uri(self) -> str:
        return CALLBACK

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri == CALLBACK

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == sys.argv[1]

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:  # noqa: ARG002  # Authlib passes it
        return method in ("client_secret_post", "client_secret_basic")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


class Code(SimpleNamespace):
    """A code with what it was given for; Authlib reads it by these methods."""

    def get_redirect_uri(self) -> str:
        return str(self.redirect_uri)

    def get_scope(self) -> str:
        return str(self.scope)

    def get_nonce(self) -> None:
        return None

    def get_auth_time(self) -> int:
        return int(time.time())

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


class CodeGrant(AuthorizationCodeGrant):
    """The grant of codes, each of use once."""

    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_post", "client_secret_basic"]

    def save_authorization_code(self, code: str, request: Any) -> None:
        data = request.payload.data
        CODES[code] = Code(
            code=code,
            redirect_uri=data["redirect_uri"],
            scope=data["scope"],
            code_challenge=data.get("code_challenge"),
            code_challenge_method=data.get("code_challenge_method"),
            user=request.user,
        )

    def query_authorization_code(self, code: str, client: Client) -> Code | None:  # noqa: ARG002  # see above
        return CODES.get(code)

    def delete_authorization_code(self, authorization_code: Code) -> None:
        del CODES[authorization_code.code]

    def authenticate_user(self, authorization_code: Code) -> Any:
        return authorization_code.user


class IdToken(OpenIDCode):
    """The ID token, with the claims that were put."""

    def exists_nonce(self, nonce: str, request: Any) -> bool:  # noqa: ARG002  # see above
        return False

    def get_client_algorithm(self, client: Client) -> str:  # noqa: ARG002  # see above
        return "RS256"

    def get_encode_header(self, client: Client) -> dict[str, str]:  # noqa: ARG002  # see above
        return {"alg": "RS256", "kid": "one"}

    def resolve_client_private_key(self, client: Client) -> Any:  # noqa: ARG002  # see above
        return (
            RSAKey.generate_key(2048, {"kid": "one"}) if STATE["foreign_key"] else KEY
        )

    def get_compatible_claims(self, request: Any) -> dict[str, Any]:
        now = int(time.time())
        audience = request.client.get_client_id()
        return {"iss": STATE["issuer"], "aud": audience, "iat": now, "exp": now + 300}

    def generate_user_info(self, user: dict[str, Any], scope: str) -> dict[str, Any]:  # noqa: ARG002  # see above
        return user


class Server(AuthorizationServer):
    """Authlib's server with its rows in this process."""

    def query_client(self, client_id: str) -> Client | None:
        return Client() if client_id == CLIENT_ID else None

    def save_token(self, token: dict[str, Any], request: Any) -> None:
        TOKENS[token["access_token"]] = request.user

    def send_signal(self, *_: Any, **__: Any) -> None:
        pass

    def create_oauth2_request(self, request: OAuth2Request) -> OAuth2Request:
        return request

    def handle_response(
        self, status: int, body: Any, headers: Any
    ) -> tuple[int, Any, Any]:
        return status, body, headers


class Handler(BaseHTTPRequestHandler):
    """The addresses of the provider."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:  # the base class calls it
        path = urlsplit(self.path).path
        issuer = STATE["issuer"]
        if path == "/.well-known/openid-configuration":
            names = ("authorize", "token", "userinfo", "jwks")
            at = {name: f"{issuer}/{name}" for name in names}
            self.answer(
                200,
                {
                    "issuer": issuer,
                    "authorization_endpoint": at["authorize"],
                    "token_endpoint": at["token"],
                    "userinfo_endpoint": at["userinfo"],
                    "jwks_uri": at["jwks"],
                    "token_endpoint_auth_methods_supported": [
                        "client_secret_post",
                        "client_secret_basic",
                    ],
                },
            )
        elif path == "/jwks":
            self.answer(200, KeySet([KEY]).as_dict(private=False))
        elif path == "/userinfo":
            claims = TOKENS.get(
                self.headers.get("Authorization", "").removeprefix("Bearer ")
            )
            self.answer(200, {**claims, **STATE["info"]}) if claims else self.answer(
                401, {}
            )
        elif path == "/authorize":
            self.authorize()

    def do_POST(self) -> None:  # the base class calls it
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if self.path == "/claims":
            STATE.update(json.loads(body))
            self.answer(204, "")
        else:
            status, content, headers = SERVER.create_token_response(
                self.request_with(dict(parse_qsl(body)))
            )
            self.answer(status, content, headers)

    def authorize(self) -> None:
        """Respond as after the login of a person, who has no page here."""
        request = self.request_with(dict(parse_qsl(urlsplit(self.path).query)))
        user = STATE["claims"] or None
        try:
            grant = SERVER.get_consent_grant(request, end_user=user)
        except OAuth2Error as error:
            self.answer(400, dict(error.get_body()))
            return
        self.answer(
            *SERVER.create_authorization_response(request, grant_user=user, grant=grant)
        )

    def request_with(self, data: dict[str, str]) -> OAuth2Request:
        request = OAuth2Request(
            self.command, f"{STATE['issuer']}{self.path}", headers=self.headers
        )
        request.payload = BasicOAuth2Payload(data)
        request._body = data if self.command == "POST" else None
        return request

    def answer(self, status: int, content: Any, headers: Any = ()) -> None:
        body = (
            content.encode()
            if isinstance(content, str)
            else json.dumps(content).encode()
        )
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


SERVER = Server()
SERVER.register_token_generator(
    "default", BearerTokenGenerator(lambda *_, **__: f"{time.time_ns()}-token")
)
SERVER.register_grant(CodeGrant, [IdToken(), CodeChallenge(required=True)])

if __name__ == "__main__":
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    STATE["issuer"] = f"http://127.0.0.1:{listening.server_port}"
    sys.stdout.write(f"{listening.server_port}\n")
    sys.stdout.flush()
    listening.serve_forever()
