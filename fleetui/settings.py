"""Settings, each from the environment or a default that is right for one person on one machine."""

import os
from datetime import timedelta
from functools import partial
from typing import Any

from django.utils.functional import SimpleLazyObject
from kombu import Queue
from whitenoise.compress import Compressor

from fleetui import broker
from fleetui.apimachinery.yaml import LARGEST_UPLOAD, MEBIBYTE
from fleetui.env import (
    SettingRefused,
    check_hub_servers,
    keep_secret,
    read_variables,
    sqlite_database,
)
from fleetui.locations import SOURCE, assets_folder
from fleetui.middleware import https_origins

BASE_DIR = SOURCE
variables = read_variables()

# What the running console writes: database, secret, collected static files. Never in git.
VAR_DIR = variables.VAR_DIR

DEBUG = variables.DEBUG
ALLOWED_HOSTS = variables.ALLOWED_HOSTS

# A proxy terminates HTTPS and sets the header; all responses require HTTPS then.
HTTPS = variables.HTTPS
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
# A name that browsers accept over HTTPS only, from this host only, and not from a subdomain of it.
SESSION_COOKIE_NAME = "__Host-sessionid" if HTTPS else "sessionid"
CSRF_COOKIE_NAME = "__Host-csrftoken" if HTTPS else "csrftoken"
SECURE_SSL_REDIRECT = HTTPS
# Prometheus reads each process at its own address, behind the proxy.
SECURE_REDIRECT_EXEMPT = [r"^metrics$"]
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS and variables.HSTS_SUBDOMAINS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
# Only these may name the client of a request (`fleetui/accounts/proxy.py`).
TRUSTED_PROXIES = variables.TRUSTED_PROXIES
PROXY_USER_HEADER = variables.PROXY_USER_HEADER
if PROXY_USER_HEADER and not TRUSTED_PROXIES:
    raise SettingRefused(
        "FLEETUI_PROXY_USER_HEADER",
        os.environ["FLEETUI_PROXY_USER_HEADER"],
        "list the addresses of the proxies in FLEETUI_TRUSTED_PROXIES as well",
    )
PROXY_GROUPS_HEADER = variables.PROXY_GROUPS_HEADER
PROXY_ROLES = variables.PROXY_ROLES
CSRF_TRUSTED_ORIGINS = https_origins(ALLOWED_HOSTS) if HTTPS else []

# Made on first use and not on import: `simulate` has to run where nothing may be written.
SECRET_KEY = variables.SECRET_KEY or SimpleLazyObject(
    partial(keep_secret, VAR_DIR / "secret-key")
)

# Live hubs: without this app the console has the local hub only.
HUBS_APP = "placements.hubs.apps.HubsConfig"
LIVE_HUBS = variables.LIVE_HUBS

INSTALLED_APPS = [
    "fleetui.apps.FleetUIConfig",
    "fleetui.apps.FleetAdminConfig",
    "fleetui.accounts.apps.AccountsConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    # Ahead of staticfiles: with DEBUG on, too, files go the way they go in production.
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "fleetui.access.apps.AccessConfig",
    "clusters",
    "placements",
    *([HUBS_APP] if LIVE_HUBS else []),
]


# Traces of requests and tasks (`fleetui/tracing.py`).
TRACES = variables.TRACES

MIDDLEWARE = [
    # Ahead of everything that reads the address of the client.
    *(["fleetui.accounts.proxy.TrustedProxyMiddleware"] if TRUSTED_PROXIES else []),
    "fleetui.middleware.RequestIdMiddleware",
    "fleetui.middleware.TransportMiddleware",
    # Ahead of the redirect to HTTPS and of the check of the host.
    "fleetui.monitoring.ProbesMiddleware",
    "fleetui.monitoring.HttpMetricsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # After the static files, which are compressed once; ahead of all that writes a body.
    "django.middleware.gzip.GZipMiddleware",
    # After the static files, which browsers keep.
    "fleetui.middleware.NoStoreMiddleware",
    # Ahead of everything that reads the path or the database.
    "clusters.middleware.HubMiddleware",
    # After the static files: a picture may bring a style of its own.
    "fleetui.middleware.ContentSecurityPolicyMiddleware",
    "fleetui.middleware.NoNullsMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    # Ahead of what most polls do not need: the session, the user and the check of forms.
    "fleetui.polling.PollingMiddleware",
    # Ahead of the check of forms, which reads the body.
    "fleetui.middleware.RequestBudgetMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    # After the messages: a session that ends leaves one.
    "fleetui.middleware.SessionLimitsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    *(["fleetui.accounts.proxy.ProxyLoginMiddleware"] if PROXY_USER_HEADER else []),
    # After all that logs a user in.
    "fleetui.accounts.second_factor.SecondFactorMiddleware",
    "fleetui.middleware.RefusalMiddleware",
    "placements.web.errors.UnreadableRecordMiddleware",
    "fleetui.middleware.ChangesMiddleware",
    # Nearest to the views: the others answer what fails twice.
    "fleetui.middleware.ReadAgainMiddleware",
]

CHANGE_RECORDER = "placements.services.problems.book.outdate"
"""Called with each hub that a request, task or command has changed."""
VERSION_READER = "placements.services.hub_version.stored_version"
"""Returns the version of a hub, which changes when pages may have changed."""
HUB_MODEL = "clusters.Hub"
"""The model that grants of a team refer to."""
HUB_FINDER = "clusters.hub_queries.hub_id_named"
"""Returns the key of the hub with a name; None without one."""
WATCHED_HUBS = "clusters.hub_queries.has_watched_hubs"
"""Returns whether there is a live hub to be watched."""
AUTHENTICATION_BACKENDS = ["fleetui.permissions.AccountBackend"]
SECRETS_PERMISSION = "placements.view_secrets"
"""The permission to view the values of Secrets."""
NOTIFICATIONS_PERMISSION = "clusters.change_notificationchannel"
"""The permission to view and change notification channels and rules."""
REFUSAL_RECORDER = "fleetui.access.audit.record_refusal"
"""Called with each request that was answered with the status 403."""

ROOT_URLCONF = "fleetui.urls"
WSGI_APPLICATION = "fleetui.wsgi.application"
ASGI_APPLICATION = "fleetui.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [assets_folder() / "templates"],
        "OPTIONS": {
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    [
                        "fleetui.template_loader.Loader",
                        # the admin brings its own
                        "django.template.loaders.app_directories.Loader",
                    ],
                )
            ],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "placements.web.layout.base_context",
            ],
        },
    }
]

# One file and no server, until DATABASE_URL names one.
DATABASES = {
    "default": variables.DATABASE_URL or sqlite_database(VAR_DIR / "fleetui.sqlite3")
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# A folder and no server, until CELERY_BROKER_URL names one.
CELERY_BROKER_URL = variables.CELERY_BROKER_URL
CELERY_BROKER_TRANSPORT_OPTIONS = broker.transport_options(
    CELERY_BROKER_URL, folder=VAR_DIR / "queue"
)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# Results are in the database; a task may run twice and does nothing the second time.
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# SQLite reads its whole schema at each connection. The connections of a process are closed after about twice
# as many calls, two for each task; with PostgreSQL the pool keeps them.
CELERY_DB_REUSE_MAX = 30 * (DATABASES["default"]["ENGINE"].endswith("sqlite3"))
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TIMEZONE = "UTC"
CELERY_ENABLE_UTC = True
# The sweep and the observation of clusters have their own queue, so that many updates do not delay them.
# A worker that is not restricted with -Q reads all of these.
CELERY_TASK_QUEUES = [
    Queue(name, routing_key=name)
    for name in (broker.UPDATES, broker.PERIODIC, broker.ANALYSES, broker.EXACT)
]
CELERY_TASK_ROUTES = {
    "placements.tasks.sweep": {"queue": broker.PERIODIC},
    "clusters.tasks.observe": {"queue": broker.PERIODIC},
    "placements.hubs.tasks.refresh_hubs": {"queue": broker.PERIODIC},
    # They wait for hubs.
    "placements.hubs.tasks.resolve_hub_writes": {"queue": broker.ANALYSES},
    "placements.hubs.tasks.advance_hub_drains": {"queue": broker.ANALYSES},
    "placements.tasks.check_findings": {"queue": broker.ANALYSES},
    "placements.tasks.evaluate_resilience": {"queue": broker.ANALYSES},
    "placements.tasks.prune": {"queue": broker.ANALYSES},
    "placements.tasks.search_exactly": {"queue": broker.EXACT},
    "placements.hubs.tasks.observe_decisions": {"queue": broker.ANALYSES},
}
CELERY_BEAT_SCHEDULER = "fleetui.task_queue:BoundedScheduler"
# A full queue takes no more ticks. They are valid for longer than their period, as the clock of a worker may
# be ahead of that of the sender.
_PERIODS = {
    "placements.tasks.sweep": 1.0,
    "clusters.tasks.observe": 5.0,
    "placements.hubs.tasks.advance_hub_drains": 5.0,
    "placements.hubs.tasks.refresh_hubs": 15.0,
    "placements.tasks.notify": 5.0,
    "placements.hubs.tasks.resolve_hub_writes": 15.0,
}
CELERY_BEAT_SCHEDULE = {
    task.rpartition(".")[2].replace("_", "-"): {
        "task": task,
        "schedule": seconds,
        "options": {"expires": broker.VALID_SECONDS},
    }
    for task, seconds in _PERIODS.items()
    if not task.startswith("placements.hubs.") or LIVE_HUBS
}

# How long rows are kept that nothing refers to (`placements.services.pruning`).
KEEP_EVENTS = variables.KEEP_EVENTS
KEEP_DECISIONS = variables.KEEP_DECISIONS
KEEP_ROLLOUTS = variables.KEEP_ROLLOUTS
KEEP_EVICTIONS = variables.KEEP_EVICTIONS
KEEP_DRAFTS = variables.KEEP_DRAFTS
KEEP_ACCESS_LOG = variables.KEEP_ACCESS_LOG
KEEP_HUB_HISTORY = variables.HUB_HISTORY
KEEP_NOTIFICATIONS = variables.KEEP_NOTIFICATIONS
# Where people open the console: links in notifications start with it.
PUBLIC_URL = variables.PUBLIC_URL
KEEP_MESSAGES = variables.KEEP_MESSAGES
# A process reads the clusters that changed, and the whole fleet if more than so many percent did, or if it
# holds one from before the tombstones that are kept.
FLEET_PATCH_PERCENT = variables.FLEET_PATCH_PERCENT
# Rules of the checks that are never reported, separated by commas.
CHECKS_MUTED = [part for part in variables.CHECKS_MUTED.split(",") if part]
KEEP_TOMBSTONES = variables.KEEP_TOMBSTONES

# Credentials of member clusters (`clusters/credentials.py`), and where connections to them may go
# (`clusters/kubernetes_drivers.py`).
CREDENTIAL_KEYS = variables.CREDENTIAL_KEYS
CREDENTIAL_KEY_FILE = VAR_DIR / "credential.keys"
check_hub_servers(os.environ)
ALLOW_INSECURE_TLS = variables.ALLOW_INSECURE_TLS
IN_CLUSTER = variables.IN_CLUSTER
MEMBER_NETWORKS = variables.MEMBER_NETWORKS
MEMBER_LOOPBACK = variables.MEMBER_LOOPBACK
MEMBER_PROXIES = variables.MEMBER_PROXIES
LONGEST_OBSERVATION = timedelta(minutes=variables.LONGEST_OBSERVATION_MINUTES)

# For how many days an API token may be valid (`fleetui/access/tokens.py`).
TOKEN_MOST_DAYS = variables.TOKEN_MOST_DAYS

# Budgets by process (`fleetui/middleware.py`): of a request in seconds, of a user in seconds of a
# processor within two minutes; and how many what-if analyses of a user may wait at once.
REQUEST_SECONDS = variables.REQUEST_SECONDS
COMPUTE_SECONDS = variables.COMPUTE_SECONDS

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
] + [
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "fleetui.accounts.passwords.RepetitionValidator"},
    {
        "NAME": "fleetui.accounts.passwords.ContextWordsValidator",
        "OPTIONS": {"words": variables.PASSWORD_WORDS.split()},
    },
]
# A session ends so long after the last request of a person, and so long after the login.
SESSION_IDLE = variables.SESSION_IDLE
SESSION_LONGEST = variables.SESSION_LONGEST
SESSION_COOKIE_AGE = int(SESSION_LONGEST.total_seconds())

# Counters of attempts and used codes: one cache for all web processes, without a server of its own.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "fleetui_shared_cache",
        # Beyond it entries are dropped, and with them counters: more than attempts in 15 minutes can leave.
        "OPTIONS": {"MAX_ENTRIES": 200_000},
    },
    # Of each process: what is looked at in every request.
    "process": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
}

# Roles that need a second factor (`fleetui/accounts/second_factor.py`).
SECOND_FACTOR_ROLES = variables.SECOND_FACTOR_ROLES

# An identity provider (`fleetui/accounts/oidc.py`).
OIDC_ISSUER = variables.OIDC_ISSUER
OIDC_NAME = variables.OIDC_NAME if OIDC_ISSUER else ""
OIDC_NAME_CLAIM = variables.OIDC_NAME_CLAIM
OIDC_ROLE_CLAIM = variables.OIDC_ROLE_CLAIM
OIDC_ROLES = variables.OIDC_ROLES
_OIDC_CLIENT = {
    "provider_id": "oidc",
    "name": OIDC_NAME,
    "client_id": variables.OIDC_CLIENT_ID,
    "secret": variables.OIDC_CLIENT_SECRET or "",
    "settings": {
        "server_url": OIDC_ISSUER,
        "oauth_pkce_enabled": True,
        "scope": variables.OIDC_SCOPES.split(),
    },
}

# Notices to users about their accounts (`fleetui/access/notices.py`).
globals().update(variables.MAIL_SERVER)
DEFAULT_FROM_EMAIL = variables.MAIL_FROM

# allauth: no visitor creates an account, e-mail addresses mean nothing, and attempts are limited by
# `fleetui/accounts/attempts.py` at each entry point, so that its own limit of logins is off.
ACCOUNT_ADAPTER = "fleetui.accounts.adapters.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_SESSION_REMEMBER = True  # until SESSION_LONGEST
ACCOUNT_RATE_LIMITS = {"login": None, "login_failed": None}
ACCOUNT_LOGOUT_ON_PASSWORD_CHANGE = False
ACCOUNT_REAUTHENTICATION_TIMEOUT = 300
MFA_ADAPTER = "fleetui.accounts.adapters.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_ALLOW_UNVERIFIED_EMAIL = True
MFA_RECOVERY_CODES_SHOW_ONCE = True
MFA_RECOVERY_CODE_DIGITS = 10
MFA_FORMS = {
    "authenticate": "fleetui.accounts.forms.FactorCodeForm",
    "reauthenticate": "fleetui.accounts.forms.FactorCodeAgainForm",
    "authenticate_webauthn": "fleetui.accounts.forms.SecurityKeyForm",
    "reauthenticate_webauthn": "fleetui.accounts.forms.SecurityKeyAgainForm",
}
SOCIALACCOUNT_ADAPTER = "fleetui.accounts.oidc.ProviderAdapter"
SOCIALACCOUNT_EMAIL_AUTHENTICATION = False
SOCIALACCOUNT_REAUTHENTICATION_REQUIRED = True
SOCIALACCOUNT_LOGIN_ON_GET = False
SOCIALACCOUNT_STORE_TOKENS = False
SOCIALACCOUNT_REQUESTS_TIMEOUT = 10
SOCIALACCOUNT_PROVIDERS = {
    "openid_connect": {"APPS": [_OIDC_CLIENT] if OIDC_ISSUER else []}
}

# Of the first start only: the administrator that is made when there is none.
FIRST_ADMIN_USER = variables.ADMIN_USER
FIRST_ADMIN_PASSWORD = variables.ADMIN_PASSWORD

# A manifest in a text area has the same limit as a file; a form encodes a character as three at most.
DATA_UPLOAD_MAX_MEMORY_SIZE = 3 * LARGEST_UPLOAD
# Never in a temporary file: an upload may hold values of Secrets. The request budget bounds the whole body.
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.MemoryFileUploadHandler"]
FILE_UPLOAD_MAX_MEMORY_SIZE = DATA_UPLOAD_MAX_MEMORY_SIZE + MEBIBYTE

LANGUAGE_CODE = "en"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True

# Absolute: the static files are the same for all hubs.
STATIC_URL = "/static/"
# Of an image: collected when it was built, where no process writes.
STATIC_ROOT = variables.STATIC_DIR or VAR_DIR / "static"
STATIC_IS_BUILT = variables.STATIC_DIR is not None
STATICFILES_DIRS = [assets_folder() / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "fleetui.staticfiles.PackageFinder",
]
# Django makes them readable for everyone otherwise, whatever the umask is.
FILE_UPLOAD_PERMISSIONS, FILE_UPLOAD_DIRECTORY_PERMISSIONS = 0o600, 0o700
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "fleetui.staticfiles.StaticFiles"},
}
# Source maps, which only the tools of developers read, are a third of all.
WHITENOISE_SKIP_COMPRESS_EXTENSIONS = (*Compressor.SKIP_COMPRESS_EXTENSIONS, "map")

# A client with this token, or a superuser, reads `/metrics`.
METRICS_TOKEN = variables.METRICS_TOKEN

# For people, or one JSON object a line for programs (`fleetui/logs.py`).
LOG_FORMAT = variables.LOG_FORMAT
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "request_id": {"()": "fleetui.middleware.RequestIdFilter"},
        "refused": {"()": "fleetui.middleware.RefusedRequestFilter"},
        "environment": {"()": "fleetui.environment.EnvironmentFilter"},
    },
    "formatters": {
        "plain": {"format": "%(message)s%(request_id)s"},
        "json": {"()": "fleetui.logs.JsonFormatter"},
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "filters": ["environment", "request_id", "refused"],
            "formatter": LOG_FORMAT,
        }
    },
    # Django's default shows nothing on the console while DEBUG is off, not even a server error.
    "loggers": {
        "django": {"handlers": ["console"], "level": "INFO"},
        "fleetui.access": {
            "handlers": ["console"],
            "level": "INFO",
            "propagate": False,
        },
    },
}
if (
    LOG_FORMAT == "json"
):  # then of everything: Celery would write its own lines otherwise
    LOGGING |= {"root": {"handlers": ["console"], "level": "WARNING"}}
    LOGGING["loggers"]["django"]["propagate"] = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = LOG_FORMAT != "json"

# --- REST: JSON and YAML, problems as RFC 9457 has them, a schema of our own words ---------------

REST_FRAMEWORK = {
    # The token first: its challenge goes with every 401.
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "placements.api.authentication.ApiTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    # Every viewset has its own; one without is for administrators only.
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAdminUser"],
    "DEFAULT_PARSER_CLASSES": [
        "placements.api.parsers.JsonParser",
        "placements.api.parsers.YamlParser",
        "placements.api.parsers.OldYamlParser",
        "placements.api.parsers.TextYamlParser",
    ],
    "DEFAULT_RENDERER_CLASSES": [
        "rest_framework.renderers.JSONRenderer",
        "placements.api.renderers.YamlRenderer",
    ],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_METADATA_CLASS": None,
    "EXCEPTION_HANDLER": "placements.api.problems.answer_problem",
    # What a client writes into X-Forwarded-For must not give it a new count of attempts.
    "NUM_PROXIES": 0,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "FleetUI",
    "DESCRIPTION": "Member clusters, resources, placements, and the decisions on them.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "POSTPROCESSING_HOOKS": ["placements.api.manifest_schema.complete_schema"],
}
