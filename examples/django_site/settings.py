"""The least that a site needs."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(os.environ.get("SITE_FOLDER", Path(__file__).parent))
SECRET_KEY = "for an example"
INSTALLED_APPS = ["primacy.contrib.django", "reports"]
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "site.db", "OPTIONS": {"timeout": 10}}
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

PRIMACY = {
    "store": os.environ.get("STORE", f"sqlite:///{FOLDER}/leases.db"),
    "profile": os.environ.get("PROFILE", "lan"),
}
"""Where the elections are kept; in earnest the same database as above, such as postgresql://host/db."""
