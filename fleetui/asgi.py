"""The ASGI application, for a server that supports ASGI."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")

application = get_asgi_application()
