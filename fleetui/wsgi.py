"""The WSGI application."""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")

application = get_wsgi_application()
# libpq reads it at each connection: PostgreSQL ends a statement that takes longer than a request may.
os.environ.setdefault("PGOPTIONS", f"-c statement_timeout={settings.REQUEST_SECONDS}s")
