"""Settings, each from the environment or a default that is right for one person on one machine."""

import os
from datetime import timedelta
from functools import partial
from pathlib import Path

from django.utils.functional import SimpleLazyObject
from kombu import Queue

from fleetui import broker
from fleetui.apimachinery.yaml import LARGEST_UPLOAD
from fleetui.env import (
    keep_secret,
    read_broker,
    read_count,
    read_database,
    read_encryption_keys,
    read_flag,
    read_folder,
    read_hosts,
    read_minutes,
    read_networks,
    read_password,
    read_period,
    read_proxies,
    read_secret,
    read_text,
)
from fleetui.middleware import https_origins

BASE_DIR = Path(__file__).resolve().parent.parent

# What the running console writes: database, secret, collected static files. Never in git.
VAR_DIR = read_folder(os.environ, "FLEETUI_VAR_DIR", default=BASE_DIR / "var")

DEBUG = read_flag(os.environ, "FLEETUI_DEBUG", default=False)
ALLOWED_HOSTS = read_hosts(
    os.environ, "FLEETUI_ALLOWED_HOSTS", default=("localhost", ".localhost", "127.0.0.1", "[::1]")
)

# A proxy terminates HTTPS and sets the header; all responses require HTTPS then.
HTTPS = read_flag(os.environ, "FLEETUI_HTTPS", default=False)
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if HTTPS else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
CSRF_TRUSTED_ORIGINS = https_origins(ALLOWED_HOSTS) if HTTPS else []

# Made on first use and not on import: `simulate` has to run where nothing may be written.
SECRET_KEY = read_secret(os.environ, "FLEETUI_SECRET_KEY") or SimpleLazyObject(
    partial(keep_secret, VAR_DIR / "secret-key")
)

INSTALLED_APPS = [
    "fleetui.apps.FleetUIConfig",
    "fleetui.apps.FleetAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    # Ahead of staticfiles: with DEBUG on, too, files go the way they go in production.
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "fleetui.access.apps.AccessConfig",
    "clusters",
    "placements",
]

MIDDLEWARE = [
    "fleetui.middleware.RequestIdMiddleware",
    # Ahead of the redirect to HTTPS and of the check of the host.
    "fleetui.probes.ProbesMiddleware",
    "fleetui.http_metrics.HttpMetricsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # Ahead of everything that reads the path or the database.
    "clusters.hubs.middleware.HubMiddleware",
    # After the static files: a picture may bring a style of its own.
    "fleetui.middleware.ContentSecurityPolicyMiddleware",
    "fleetui.middleware.NoNullsMiddleware",
    # Ahead of the check of forms, which reads the body.
    "fleetui.middleware.RequestBudgetMiddleware",
    # Ahead of the session, which it saves reading.
    "fleetui.polling.UnchangedMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "placements.web.record_middleware.UnreadableRecordMiddleware",
]

REFUSAL_RECORDER = "fleetui.access.audit.record_refusal"
"""Called with each request that was answered with the status 403."""

ROOT_URLCONF = "fleetui.urls"
WSGI_APPLICATION = "fleetui.wsgi.application"
ASGI_APPLICATION = "fleetui.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,  # the admin brings its own
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "placements.web.layout.base_context",
            ],
        },
    },
]

# One file and no server, until DATABASE_URL names one.
DATABASES = {"default": read_database(os.environ, "DATABASE_URL", default=VAR_DIR / "fleetui.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# A folder and no server, until CELERY_BROKER_URL names one.
CELERY_BROKER_URL = read_broker(os.environ, "CELERY_BROKER_URL", default=f"{broker.SCHEME}://")
CELERY_BROKER_TRANSPORT_OPTIONS = broker.transport_options(CELERY_BROKER_URL, folder=VAR_DIR / "queue")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# Results are in the database; a task may run twice and does nothing the second time.
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TIMEZONE = "UTC"
CELERY_ENABLE_UTC = True
# The sweep and the observation of clusters have their own queue, so that many updates do not delay them.
# A worker that is not restricted with -Q reads all of these.
CELERY_TASK_QUEUES = [
    Queue(name, routing_key=name) for name in (broker.UPDATES, broker.PERIODIC, broker.ANALYSES)
]
CELERY_TASK_ROUTES = {
    "placements.tasks.sweep": {"queue": broker.PERIODIC},
    "clusters.tasks.observe": {"queue": broker.PERIODIC},
    "placements.tasks.refresh_hubs": {"queue": broker.PERIODIC},
    # They wait for hubs.
    "clusters.tasks.resolve_hub_writes": {"queue": broker.ANALYSES},
    "placements.tasks.advance_hub_drains": {"queue": broker.ANALYSES},
    "placements.tasks.evaluate_scenarios": {"queue": broker.ANALYSES},
    "placements.tasks.prune": {"queue": broker.ANALYSES},
    "placements.tasks.run_dry_runs": {"queue": broker.ANALYSES},
    "placements.tasks.judge_hub": {"queue": broker.ANALYSES},
}
CELERY_BEAT_SCHEDULER = "fleetui.task_queue:BoundedScheduler"
# A tick that waited longer than its period is worth nothing: the next one does the same.
CELERY_BEAT_SCHEDULE = {
    "sweep": {"task": "placements.tasks.sweep", "schedule": 1.0, "options": {"expires": 1.0}},
    "observe": {"task": "clusters.tasks.observe", "schedule": 5.0, "options": {"expires": 5.0}},
    "refresh-hubs": {"task": "placements.tasks.refresh_hubs", "schedule": 15.0, "options": {"expires": 15.0}},
    "advance-hub-drains": {
        "task": "placements.tasks.advance_hub_drains",
        "schedule": 5.0,
        "options": {"expires": 5.0},
    },
    "resolve-hub-writes": {
        "task": "clusters.tasks.resolve_hub_writes",
        "schedule": 15.0,
        "options": {"expires": 15.0},
    },
}

# How long rows are kept that nothing refers to (`placements.services.pruning`).
_KEEP = timedelta(days=90)
KEEP_EVENTS = read_period(os.environ, "FLEETUI_KEEP_EVENTS", default=_KEEP)
KEEP_DECISIONS = read_period(os.environ, "FLEETUI_KEEP_DECISIONS", default=_KEEP)
KEEP_ROLLOUTS = read_period(os.environ, "FLEETUI_KEEP_ROLLOUTS", default=_KEEP)
KEEP_EVICTIONS = read_period(os.environ, "FLEETUI_KEEP_EVICTIONS", default=_KEEP)
KEEP_ANALYSES = read_period(os.environ, "FLEETUI_KEEP_ANALYSES", default=_KEEP)
KEEP_DRAFTS = read_period(os.environ, "FLEETUI_KEEP_DRAFTS", default=_KEEP)
KEEP_ACCESS_LOG = read_period(os.environ, "FLEETUI_KEEP_ACCESS_LOG", default=timedelta(days=365))
KEEP_HUB_HISTORY = read_period(os.environ, "FLEETUI_HUB_HISTORY", default=timedelta(days=30))
KEEP_MESSAGES = read_period(os.environ, "FLEETUI_KEEP_MESSAGES", default=timedelta(hours=1))

# Credentials of member clusters (`clusters/credentials.py`), and where connections to them may go
# (`clusters/kubernetes_drivers.py`).
CREDENTIAL_KEYS = read_encryption_keys(os.environ, "FLEETUI_CREDENTIAL_KEYS")
CREDENTIAL_KEY_FILE = VAR_DIR / "credential.keys"
ALLOW_INSECURE_TLS = read_flag(os.environ, "FLEETUI_ALLOW_INSECURE_TLS", default=False)
IN_CLUSTER = read_flag(os.environ, "FLEETUI_IN_CLUSTER", default=False)
MEMBER_NETWORKS = read_networks(os.environ, "FLEETUI_MEMBER_NETWORKS")
MEMBER_LOOPBACK = read_flag(os.environ, "FLEETUI_MEMBER_LOOPBACK", default=False)
MEMBER_PROXIES = read_proxies(os.environ, "FLEETUI_MEMBER_PROXIES")
LONGEST_OBSERVATION = read_minutes(
    os.environ, "FLEETUI_LONGEST_OBSERVATION_MINUTES", default=15, most=24 * 60
)

# For how many days an API token may be valid (`fleetui/access/tokens.py`).
TOKEN_MOST_DAYS = read_count(os.environ, "FLEETUI_TOKEN_MOST_DAYS", default=365, least=1, most=3650)

# Budgets by process (`fleetui/middleware.py`): of a request in seconds, of a user in seconds of a
# processor within two minutes; and how many what-if analyses of a user may wait at once.
REQUEST_SECONDS = read_count(os.environ, "FLEETUI_REQUEST_SECONDS", default=120, least=5, most=3600)
COMPUTE_SECONDS = read_count(os.environ, "FLEETUI_COMPUTE_SECONDS", default=60, least=1, most=3600)
MOST_WAITING_ANALYSES = read_count(os.environ, "FLEETUI_WAITING_ANALYSES", default=5, least=1, most=100)

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# Of the first start only: the administrator that is made when there is none.
FIRST_ADMIN_USER = read_text(os.environ, "FLEETUI_ADMIN_USER", default="admin")
FIRST_ADMIN_PASSWORD = read_password(os.environ, "FLEETUI_ADMIN_PASSWORD")

# A manifest in a text area has the same limit as a file; a form encodes a character as three at most.
DATA_UPLOAD_MAX_MEMORY_SIZE = 3 * LARGEST_UPLOAD

LANGUAGE_CODE = "en"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True

# Absolute: the static files are the same for all hubs.
STATIC_URL = "/static/"
STATIC_ROOT = VAR_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "fleetui.staticfiles.PlotlyFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

# Whoever sends this token, or a superuser, reads `/metrics`.
METRICS_TOKEN = read_secret(os.environ, "FLEETUI_METRICS_TOKEN")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request_id": {"()": "fleetui.middleware.RequestIdFilter"}},
    "formatters": {"plain": {"format": "%(message)s%(request_id)s"}},
    "handlers": {
        "console": {"class": "logging.StreamHandler", "filters": ["request_id"], "formatter": "plain"}
    },
    # Django's default shows nothing on the console while DEBUG is off, not even a server error.
    "loggers": {"django": {"handlers": ["console"], "level": "INFO"}},
}

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
    "DEFAULT_THROTTLE_RATES": {"token": "10/min"},
    # What a client writes into X-Forwarded-For must not give it a new count of attempts.
    "NUM_PROXIES": 0,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "FleetUI",
    "DESCRIPTION": "Member clusters, resources, placements, and the decisions on them.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": {"PlacementVersion": "fleetui.apimachinery.kinds.PLACEMENT_VERSIONS"},
}
