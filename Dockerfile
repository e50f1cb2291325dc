# One image for every process of config/processes.py; docker-compose.yml says which of them runs where.

FROM python:3.11-slim-trixie AS packages
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements/environment.py requirements/runtime.in requirements/runtime.txt /tmp/requirements/
RUN python /tmp/requirements/environment.py /opt/abeyance runtime

FROM python:3.11-slim-trixie AS application
WORKDIR /srv/abeyance
COPY manage.py ./
COPY config config
COPY runtime runtime
COPY agents agents
COPY approvals approvals
COPY templates templates
COPY static static
COPY docs docs
# Python cannot write its bytecode later, and the base image comes without that of its own modules.
RUN python -m compileall -q -x '/tests?/' /usr/local/lib /srv/abeyance

FROM application AS files
COPY --from=packages /opt/abeyance /opt/abeyance
RUN STATIC_ROOT=/srv/abeyance/staticfiles /opt/abeyance/bin/python manage.py collectstatic --no-input

FROM application
LABEL org.opencontainers.image.title="Abeyance"
COPY --from=packages /opt/abeyance /opt/abeyance
COPY --from=files /srv/abeyance/staticfiles /srv/abeyance/staticfiles
# Volumes take their owner from these folders when they are first used.
RUN groupadd --gid 10001 abeyance \
    && useradd --uid 10001 --gid abeyance --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin abeyance \
    && install --directory --owner=abeyance --group=abeyance --mode=0700 \
        /var/lib/abeyance/keys /var/lib/abeyance/worker-keys /var/lib/abeyance/ledger \
        /var/lib/abeyance/objects
ENV PATH=/opt/abeyance/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    KEYS_DIR=/var/lib/abeyance/keys \
    STATIC_ROOT=/srv/abeyance/staticfiles
USER 10001:10001
EXPOSE 8000
# Of the command below; docker-compose.yml asks each other process its own question.
HEALTHCHECK --interval=30s --timeout=30s --start-period=60s --retries=3 CMD ["python", "manage.py", "healthcheck", "web"]
CMD ["python", "-m", "config.web", "--bind", "0.0.0.0:8000"]
