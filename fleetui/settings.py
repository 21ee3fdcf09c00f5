"""Settings, each from the environment or a default that is right for one person on one machine."""

import os
from functools import partial
from pathlib import Path

from django.utils.functional import SimpleLazyObject

from fleetui.environment import keep_secret, read_database, read_flag, read_folder, read_hosts, read_secret

BASE_DIR = Path(__file__).resolve().parent.parent

# What the running console writes: database, secret, collected static files. Never in git.
VAR_DIR = read_folder(os.environ, "FLEETUI_VAR_DIR", default=BASE_DIR / "var")

DEBUG = read_flag(os.environ, "FLEETUI_DEBUG", default=False)
ALLOWED_HOSTS = read_hosts(
    os.environ, "FLEETUI_ALLOWED_HOSTS", default=("localhost", ".localhost", "127.0.0.1", "[::1]")
)

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
    "rest_framework.authtoken",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "clusters",
    "placements",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # After the static files: a picture may bring a style of its own.
    "fleetui.security.content_security_policy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "fleetui.urls"
WSGI_APPLICATION = "fleetui.wsgi.application"
ASGI_APPLICATION = "fleetui.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "placements.views.shell.shell",
            ],
        },
    },
]

# One file and no server, until DATABASE_URL names one.
DATABASES = {"default": read_database(os.environ, "DATABASE_URL", default=VAR_DIR / "fleetui.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# A manifest in a text area is no upload of a file; the fleet of 5,000 has some 4 MB.
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 1024 * 1024

LANGUAGE_CODE = "en"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = VAR_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    # Django's default shows nothing on the console while DEBUG is off, not even a server error.
    "loggers": {"django": {"handlers": ["console"], "level": "INFO"}},
}
