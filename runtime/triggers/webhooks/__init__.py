"""Receives webhooks: deliveries of other systems to the address of a trigger, which become its events."""
