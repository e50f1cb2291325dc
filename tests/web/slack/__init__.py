"""People read and decide requests in Slack."""
