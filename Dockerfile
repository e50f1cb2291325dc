# One image for every process of config/processes.py; docker-compose.yml says which of them runs where.

FROM python:3.11-slim-trixie AS packages
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements/environment.py requirements/runtime.in requirements/runtime.txt /tmp/requirements/
RUN python /tmp/requirements/environment.py /opt/signoff runtime

FROM python:3.11-slim-trixie AS application
WORKDIR /srv/signoff
COPY manage.py ./
COPY config config
COPY runtime runtime
COPY agents agents
COPY approvals approvals
COPY templates templates
COPY static static
COPY docs docs
# Python cannot write its bytecode later, and the base image comes without that of its own modules.
RUN python -m compileall -q -x '/tests?/' /usr/local/lib /srv/signoff

FROM application AS files
COPY --from=packages /opt/signoff /opt/signoff
RUN STATIC_ROOT=/srv/signoff/staticfiles /opt/signoff/bin/python manage.py collectstatic --no-input

FROM application
LABEL org.opencontainers.image.title="Signoff"
COPY --from=packages /opt/signoff /opt/signoff
COPY --from=files /srv/signoff/staticfiles /srv/signoff/staticfiles
# Volumes take their owner from these folders when they are first used.
RUN groupadd --gid 10001 signoff \
    && useradd --uid 10001 --gid signoff --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin signoff \
    && install --directory --owner=signoff --group=signoff --mode=0700 \
        /var/lib/signoff/keys /var/lib/signoff/worker-keys /var/lib/signoff/ledger \
        /var/lib/signoff/objects
ENV PATH=/opt/signoff/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    KEYS_DIR=/var/lib/signoff/keys \
    STATIC_ROOT=/srv/signoff/staticfiles
USER 10001:10001
EXPOSE 8000
# Of the command below; docker-compose.yml asks each other process its own question.
HEALTHCHECK --interval=30s --timeout=30s --start-period=60s --retries=3 CMD ["python", "manage.py", "healthcheck", "web"]
CMD ["python", "-m", "config.web", "--bind", "0.0.0.0:8000"]
