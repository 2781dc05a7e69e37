"""
Creating something at the service at most once for each task instance: one thing, or one for each row of a plan.

The service has no idempotency key. So what a task is about to send is recorded first (``records``), where all tries of
the task instance can read it (``store``). Rows are sent in batches (``send``), and a try that finds a row without its
outcome searches the service (``search``) before it sends that row again (``create``).
"""
