"""For schedulers and frameworks: `primacy.contrib.celery`, `primacy.contrib.apscheduler`, `primacy.contrib.django`.

Each needs the package that it is for, and is loaded by nobody else: `import primacy` does not import them, and each
says what to install where its package is missing. They stand on the library and know no agent: `campaign.py` has what
Celery and APScheduler share, `options.py` how options are said.

Not to be confused with the folder contrib/ of the repository, which has files for HAProxy, systemd and others.
"""
