"""The WSGI application, for a server that speaks WSGI."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")

application = get_wsgi_application()
