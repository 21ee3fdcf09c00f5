"""Settings, each from the environment or a default that is right for one person on one machine."""

import os
from functools import partial
from pathlib import Path

from django.utils.functional import SimpleLazyObject

from fleetui.environment import keep_secret, read_flag, read_folder, read_hosts, read_secret

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
    # Ahead of staticfiles: with DEBUG on, too, files go the way they go in production.
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "clusters",
    "placements",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "fleetui.urls"
WSGI_APPLICATION = "fleetui.wsgi.application"
ASGI_APPLICATION = "fleetui.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {"context_processors": ["django.template.context_processors.request"]},
    },
]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": VAR_DIR / "fleetui.sqlite3",
        "OPTIONS": {
            # Without these two more than half of the writes fail while a worker writes as well.
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            "timeout": 20,
        },
    },
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

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
