"""The application: the routes of every subject, and the control routes."""

from __future__ import annotations

from fastapi import FastAPI

from airflow_custody.sandbox.approvals import routes as approvals
from airflow_custody.sandbox.control import routes as control
from airflow_custody.sandbox.health import routes as health
from airflow_custody.sandbox.paths import CONTROL, ROOT
from airflow_custody.sandbox.responses import add_error_handlers
from airflow_custody.sandbox.rules import routes as rules
from airflow_custody.sandbox.service import Service
from airflow_custody.sandbox.users import routes as users
from airflow_custody.sandbox.webhooks import routes as webhooks
from airflow_custody.sandbox.whitelist import routes as whitelist


def build_app(service: Service) -> FastAPI:
    """Return the application that serves a service."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.service = service
    for subject in (health, whitelist, approvals, rules, webhooks, users):
        app.include_router(subject.router, prefix=ROOT)
    app.include_router(control.router, prefix=CONTROL)
    add_error_handlers(app)
    return app
