"""Register the views of a data folder again at a start."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from service.durability.database import ViewRecord
from service.engine.state import State
from service.errors import Problem
from service.tables.estimates import estimates_of
from service.tables.relations import Relation
from service.views.live_view import LiveView
from service.views.parse import View, noted_relations, parse_view, refused_view
from service.wire.schema import RelationDefinition

log = logging.getLogger("livejoin.views")


def kept_view(record: ViewRecord, state: State) -> LiveView:
    """Return the view, to be built; it alone is failed if this release rejects its definition, which an earlier one accepted."""
    relations = state.relations
    try:
        parsed = _parsed(record, relations, state.newest)
    except Exception as error:
        reason = str(error) if isinstance(error, Problem) else f"{type(error).__name__}, see the service's log"
        unexpected = None if isinstance(error, Problem) else error
        log.error("the definition of the view %s is refused: %s", record.name, reason, exc_info=unexpected)
        view = LiveView(record.id, refused_view(record.name, record.definition, record.query, reason), relations, state.indexes)
        view.refuse(reason)
        return view
    return LiveView(record.id, parsed, relations, state.indexes)


def _parsed(record: ViewRecord, relations: Mapping[str, Relation], newest: int) -> View:
    """Parse with the definitions that its relations had when it was registered: `SELECT *` means the columns of that time."""
    definitions: dict[str, RelationDefinition] = {name: relation.definition for name, relation in relations.items()}
    counted = partial(estimates_of, relations=relations, version=newest)
    return parse_view(record.name, record.definition, definitions | noted_relations(record.query), counted, True)
