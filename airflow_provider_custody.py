"""
Empty on purpose. The package is ``airflow_custody``.

With ``[core] load_examples``, Airflow 3.3 imports a module that is named like the distribution of each provider, to
look for example DAGs in it, and logs an error with a traceback if there is none. The examples of this provider are not
loaded that way: they need connections, and one of them polls a service. ``custody examples`` lists and copies them.
"""
