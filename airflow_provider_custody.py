"""
An empty module. The package is ``airflow_custody``.

With ``[core] load_examples``, Airflow 3.3 looks for example DAGs in a module with the name of each provider's
distribution. Without this module, it would log an error with a traceback. The examples of this provider are not loaded
this way, because they need connections, and one of them polls a service. ``custody examples`` lists and copies them.
"""
