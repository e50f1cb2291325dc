"""Django's settings, the same in every process. Settings that differ between installations come from config.env."""

import logging
import os
import re
from datetime import timedelta

from config.env import environment
from runtime.core.values import limits

ENV = environment.load(os.environ)

DEBUG = False
SECRET_KEY = ENV.secret_key
ALLOWED_HOSTS = list(ENV.allowed_hosts)
ROOT_URLCONF = "config.urls"

INSTALLED_APPS = [
    "config.apps.ConfigConfig",
    "runtime",
    "agents",
    "approvals",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.forms",  # the templates of widgets
    "django_htmx",
    "template_partials",
    "ninja",  # serves the files of the API's page from here instead of the internet
]

MIDDLEWARE = [
    "config.middleware.whole_files",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.middleware.gzip.GZipMiddleware",  # it pads each answer by chance, against guesses by length
    "config.middleware.unstored",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "config.middleware.readers_time",
    "config.middleware.pages",
    "config.middleware.Refusals",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

FORM_RENDERER = "runtime.web.forms.Renderer"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [environment.ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "approvals.web.pages.navigation.nav",
                "runtime.web.requests.add_kill_switches",
            ],
            "libraries": {
                "change_rows": "approvals.web.components.arguments",
                "display": "runtime.web.display",
                "scalars": "runtime.web.scalars",
            },
        },
    }
]

# Postgres

DATABASES = {
    "default": {
        **ENV.database,
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        # A server-side cursor needs one backend for several statements, which a pooler does not guarantee.
        "DISABLE_SERVER_SIDE_CURSORS": True,
        "OPTIONS": {
            # A dead or half-open connection is detected within seconds; locks and statements have a time limit.
            "connect_timeout": 3,
            "keepalives": 1,
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": 10_000,
            "options": (
                "-c lock_timeout=2s -c statement_timeout=15s"
                " -c idle_in_transaction_session_timeout=30s"
            ),
            **ENV.database.get("OPTIONS", {}),
        },
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Broker, engine, agents

REDIS_URL = ENV.redis_url
KEYS_DIR = ENV.keys_dir
SIGNOFF_LEDGER = ENV.ledger
SIGNOFF_WATCHED_FOLDERS = ENV.watched_folders
SIGNOFF_WATCHED_BUCKETS = ENV.watched_buckets
SIGNOFF_STREAMS = ENV.streams
SIGNOFF_STREAMS_URL = ENV.streams_url
SIGNOFF_WEB_ROLE = ENV.web_role
SIGNOFF_WORKER_ROLE = ENV.worker_role
SIGNOFF_WEB_PASSWORD = ENV.web_password
SIGNOFF_WORKER_PASSWORD = ENV.worker_password
WORKER_KEYS_DIR = ENV.worker_keys_dir
IMPORT_KEYS = ENV.import_keys
SIGNOFF_AGENTS = ENV.agents
AGENTS_DIR = ENV.agents_dir
SIGNOFF_MODEL = ENV.model
OPENAI_BASE_URL = ENV.openai_base_url
OPENAI_API_KEY = ENV.openai_api_key
ANTHROPIC_BASE_URL = ENV.anthropic_base_url
ANTHROPIC_API_KEY = ENV.anthropic_api_key
SIGNOFF_PROVIDERS = ENV.providers
SIGNOFF_LEASE_SECONDS = ENV.lease_seconds
SIGNOFF_APPROVAL_SECONDS = ENV.approval_seconds
SIGNOFF_OUTAGE_SECONDS = ENV.outage_seconds
SIGNOFF_UNDO_SECONDS = ENV.undo_seconds
SIGNOFF_USE_SECONDS = ENV.use_seconds
SIGNOFF_LOOPBACK_WEBHOOKS = ENV.loopback_webhooks
SIGNOFF_INTERNAL_WEBHOOKS = ENV.internal_webhooks
SIGNOFF_GATEWAY_SECONDS = ENV.gateway_seconds
SIGNOFF_MCP_DECISIONS = ENV.mcp_decisions
SIGNOFF_COOLING_OFF_SECONDS = ENV.cooling_off_seconds
SIGNOFF_DRAIN_SECONDS = ENV.drain_seconds
SIGNOFF_UNSAFE_POSTGRES = ENV.unsafe_postgres
SIGNOFF_PREPARED_STATEMENTS = ENV.prepared_statements
SIGNOFF_RETENTION = ENV.retention
SIGNOFF_ARCHIVE = ENV.archive
SIGNOFF_HISTORY_DAYS = ENV.history_days
SIGNOFF_POISON_LOSSES = ENV.poison_losses
SIGNOFF_BUDGET = ENV.budget

# Systems that the agents' tools change

SCIM_URL = ENV.scim_url
SCIM_TOKEN = ENV.scim_token
SIGNOFF_METRICS_TOKEN = ENV.metrics_token
SIGNOFF_OBJECT_STORE = ENV.object_store
SIGNOFF_OBJECT_BYTES = ENV.object_bytes
for _name, _value in ENV.email.items():
    globals()[_name] = _value
EMAIL_TIMEOUT = 10
SIGNOFF_NOTICES = ENV.notices
DEFAULT_FROM_EMAIL = ENV.email_sender
SERVER_EMAIL = ENV.email_sender

# People

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
PASSWORD_HASHERS = ["approvals.people.login.Hasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{validator}"}
    for validator in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

# Sign-in at OpenID providers. Only a process with a provider loads allauth, and none uses its tables.

SIGNOFF_OIDC = ENV.oidc
SOCIALACCOUNT_ADAPTER = "approvals.people.oidc.ProviderRequests"
MIGRATION_MODULES = {"account": None, "socialaccount": None}
OIDC_APPS = [
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
]
OIDC_MIDDLEWARE = ["allauth.account.middleware.AccountMiddleware"]
if SIGNOFF_OIDC:
    INSTALLED_APPS += OIDC_APPS
    MIDDLEWARE += OIDC_MIDDLEWARE

# Slack

SIGNOFF_SLACK = ENV.slack

# Failed logins, counted by approvals.people.login

AUTHENTICATION_BACKENDS = [
    "approvals.people.login.Throttle",
    "django.contrib.auth.backends.ModelBackend",
]
LOGIN_FAILURES_PER_NAME = 5  # from one address
LOGIN_FAILURES_PER_ADDRESS = 10  # of all names
LOGIN_COOLOFF = timedelta(minutes=15)

# Browser

HTTPS = ENV.public_url.startswith("https://")
PUBLIC_URL = ENV.public_url
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL]
# Browsers share cookies between the ports of one host: two installations there must not log each other out.
SESSION_COOKIE_NAME = f"signoff_session{ENV.instance}"
CSRF_COOKIE_NAME = f"signoff_csrf{ENV.instance}"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS
# Only the operator of a proxy can know that the proxy sets this header and no client does.
BEHIND_PROXY = ENV.behind_proxy
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_PROXY else None
SECURE_REDIRECT_EXEMPT = [
    "^healthz$",
    "^readyz$",
    "^metrics$",
]  # requested from inside, past the proxy
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 60 * 60
SECURE_HSTS_SECONDS = 365 * 24 * 60 * 60 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = False
# HSTS must not cover subdomains that we do not serve.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = limits.MAX_BODY

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "manifest-src": ["'self'"],
        "worker-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "object-src": ["'none'"],
    }
}

STATIC_URL = "/static/"
STATIC_ROOT = ENV.static_root
STATICFILES_DIRS = [environment.ROOT / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

# Language, time, log

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False


_LINK = re.compile(r"/(password|hooks|slack/link)/[^/?\s]+")


def hide_links(record: logging.LogRecord) -> bool:
    """Shorten the addresses of links to use once and of webhooks in the arguments of a record. It is always logged."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            _LINK.sub(r"/\1/…", arg) if isinstance(arg, str) else arg for arg in record.args
        )
    return True


LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "class": "agents.masked_output.MaskedFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s: %(message)s",
        },
    },
    "filters": {
        "not_ready": {
            "()": "django.utils.log.CallbackFilter",
            # A starting launcher requests it ten times a second, and "not ready" is a normal answer.
            "callback": lambda record: "/readyz" not in record.getMessage(),
        },
        "links": {"()": "django.utils.log.CallbackFilter", "callback": hide_links},
    },
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["links"]}
    },
    "root": {"handlers": ["stderr"], "level": ENV.log_level},
    "loggers": {
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        "django.request": {"filters": ["not_ready"]},
        "uvicorn.access": {"level": "INFO", "filters": ["not_ready"]},
        # They log two lines for each hint, which the journal records too. LOG_LEVEL=debug shows them.
        **{
            name: {"level": "INFO" if ENV.log_level == "DEBUG" else "WARNING"}
            for name in ("celery.worker.strategy", "celery.app.trace")
        },
        # The journal records each of their requests as an effect, with secrets sealed.
        **{
            client: {"level": "WARNING"}
            for client in ("httpx2", "httpcore2", "openai", "anthropic")
        },
    },
}
