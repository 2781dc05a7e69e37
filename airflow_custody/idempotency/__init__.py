"""
Creating something at the service at most once for each task instance.

The service has no idempotency key. So what a task is about to send is recorded first, where all tries of the task
instance can read it, and a try that finds such an intent without its outcome looks at the service before it sends
anything. An operator that creates something describes it as a ``Creation`` and runs ``CreateOnce``.
"""
