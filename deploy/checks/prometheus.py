"""The alert rules: what each must have, its test, and the metrics that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from deploy.checks.files import DEPLOY

FOLDER = DEPLOY / "prometheus"


def complaints(rules: Mapping[str, Any], tests: Mapping[str, Any], known: set[str]) -> Iterator[str]:
    """known: the names of the series that the service and the job have."""
    tested = {re.search(r'alertname="(\w+)"', one["expr"])[1] for test in tests["tests"] for one in _firing(test)}  # type: ignore[index]
    for group in rules["groups"]:
        for rule in group["rules"]:
            name = rule["alert"]
            if name not in tested:
                yield f"{name}: no test in which it fires"
            if rule.get("labels", {}).get("severity") not in ("critical", "warning"):
                yield f"{name}: severity is neither critical nor warning"
            if not {"summary", "description"} <= rule.get("annotations", {}).keys():
                yield f"{name}: it does not say what is wrong and what to do"
            for metric in sorted(set(re.findall(r"\blivejoin_\w+", rule["expr"])) - known):
                yield f"{name}: neither the service nor the job has {metric}"


def _firing(test: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (one for one in test["promql_expr_test"] if one.get("exp_samples"))
