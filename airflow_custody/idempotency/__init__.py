"""
Create objects at the service at most once per task instance.

A task creates one object, or one for each row of a plan. The service has no idempotency key, so it cannot recognize a
request that is sent twice. Therefore a task records each row before sending it. All tries of the task instance can read
these records (``store``). Rows are sent in batches (``send``). If a try finds a row whose outcome is unknown, it
searches the service (``search``) before it sends that row again (``create``).
"""
