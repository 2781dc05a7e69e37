"""The graphs of the examples, as Airflow shows them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from airflow_server import AirflowServer
from custody_docs import catalogue
from page_visitor import Visitor
from playwright.sync_api import expect

GRAPHS = {graph.dag_id: graph for example in catalogue.examples() for graph in example.graphs()}
# Without what is around the graph: buttons, a map, dots. At one scale, so that all texts have one size.
_STYLE = """
    .react-flow__panel, .react-flow__background { display: none }
    .react-flow__viewport { transform: translate(40px, 300px) scale(1) !important }
"""


@pytest.mark.parametrize("dag_id", sorted(GRAPHS))
def test_has_all_its_tasks(newcomer: AirflowServer, visit: Callable[..., Visitor], dag_id: str) -> None:
    visitor = visit(server=newcomer, viewport={"width": 3200, "height": 1000})
    graph = visitor.open_graph(dag_id, f"/dags/{dag_id}")
    for task in GRAPHS[dag_id].tasks:
        # A mapped one has brackets after its name.
        expect(graph.get_by_text(re.compile(rf"^{task}( \[.*)?$")).first).to_be_visible(timeout=120_000)
    visitor.page.add_style_tag(content=_STYLE)
    visitor.take_picture(f"examples/{dag_id}", around=graph.locator(".react-flow__node, .react-flow__edge path"))
