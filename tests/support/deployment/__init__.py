"""The deployment of docker-compose.yml, without containers."""
