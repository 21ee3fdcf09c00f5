"""The WSGI application."""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.utils.module_loading import import_string

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")

pages = get_wsgi_application()
application = import_string("fleetui.live.LiveApplication")(pages)  # imported once the models are loaded
# libpq reads it at each connection: PostgreSQL ends a statement that takes longer than a request may.
os.environ.setdefault("PGOPTIONS", f"-c statement_timeout={settings.REQUEST_SECONDS}s")
