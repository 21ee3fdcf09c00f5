"""The WSGI application."""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")

_pages = get_wsgi_application()
from fleetui.live import LiveApplication  # noqa: E402 -- its models need the setup

application = LiveApplication(_pages)
# libpq reads it at each connection: PostgreSQL ends a statement that takes longer than a request may.
os.environ.setdefault("PGOPTIONS", f"-c statement_timeout={settings.REQUEST_SECONDS}s")
