"""The models of what the service answers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, RootModel

from livejoin.wire.batch import MAX_ERRORS
from livejoin.wire.schema import Column, Interval, Retention
from service.access.access_token import Scope
from service.api.models.body import TIME, Absent, Body, Count, Measure, Name, Row, Share
from service.api.models.requests import ViewDefinition
from service.query.model import Guarantee

AtVersion = Annotated[int, Field(ge=0, description="the version of the service's data at which this was read")]


class Problem(Body):
    model_config = ConfigDict(extra="allow")
    type: str = Field(pattern="^/problems/[a-z-]+$", description="the type, which is also the path of a page that explains it")
    title: str = Field(description="the type in words")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="what was wrong with this request, in a sentence")


class Relation(Body):
    name: Name = Field(description="the name of the relation")
    columns: list[Column] = Field(description="the columns, in order")
    key: list[str] = Field(description="the names of the columns of the primary key, which are not nullable")
    intervals: dict[str, Interval] = Field(description="the intervals by name; views join on them by `overlaps`")
    retain: Retention | Absent = Field(None, description="when rows are deleted because of their age; absent: never")
    rows: Count = Field(description="the number of its rows")


class PatchedRelation(Relation):
    expired_rows: Count | Absent = Field(
        None, description="how many rows are older than the retention of the patch allows, and are deleted next"
    )


class Relations(Body):
    relations: list[Relation] = Field(description="the relations that the access token covers, by name")


# Changes


class Reason(Body):
    index: Count = Field(description="the position of the row in the batch as it was sent, from 0; header lines are not counted")
    column: str | None = Field(description="the invalid column; null if it is the whole row")
    reason: str = Field(description="what is wrong; `key-exists` for an insert whose key exists")


class _Skipping(Body):
    skipped_count: Count = Field(description="the number of invalid rows that were skipped")
    skipped: list[Reason] = Field(max_length=MAX_ERRORS, description="the first 100 of them")


class Receipt(_Skipping):
    version: Count = Field(description="the version that the batch has made; of a duplicate, the newest version")
    applied: Count = Field(description="changes that were applied, including those that a later one of the batch replaces")
    ignored: Count = Field(description="deletes of keys that did not exist")
    duplicate: bool = Field(description="whether this epoch of the source had been applied before, so that nothing was changed")
    first: Receipt | Absent = Field(None, description="for a duplicate of the last batch of its source: the response to the first copy")


class StagedAnswer(_Skipping):
    stage: str = Field(description="the name of the stage")
    part: Count = Field(description="the number of the part")
    part_rows: Count = Field(description="rows of the part, bad ones included")
    parts: Count = Field(description="parts of the stage")
    rows: Count = Field(description="rows of the stage")


class ReplacementAnswer(RootModel[Receipt | StagedAnswer]):
    """The receipt of a replacement, or what is kept of a part."""

    model_config = ConfigDict(defer_build=True)


class Source(Body):
    name: str = Field(description="the name of the source")
    run: str | None = Field(description="the run of its last batch; null if that had none")
    epoch: int = Field(json_schema_extra={"format": "int64"}, description="the epoch of its last batch")
    version: int | None = Field(description="the version of its last batch; null if unknown, like `time`")
    time: datetime | None = Field(description=f"when that was applied, {TIME}; null if unknown")
    relations: list[str] = Field(description="the relations that it has written; it belongs to tokens that may write to all of them")


class Sources(Body):
    sources: list[Source] = Field(description="the sources that are remembered, by name")


# Views


class Plan(Body):
    cls: str = Field(alias="class", description="the class of the query, which determines the algorithms that are correct for it")
    algorithm: str = Field(description="the algorithm that maintains the view")
    theorem: str | None = Field(description="the result that gives the bounds, or says why they cannot be better; null if there is none")
    guarantee: Guarantee = Field(
        description="`strict` bounds the time of a change and the delay between rows, `delay` only the latter, `best-effort` neither"
    )
    bounds: dict[str, str] = Field(
        description="for n rows in all: `space`; `update`: the time of a change, apart from rows that it adds or removes; `delay`: the "
        "time from one row to the next"
    )
    order: list[str] = Field(description="the order in which the aliases of a row are found; a single structure finds all of them at once")
    notes: list[str] = Field(description="what to know about this plan, such as how a condition was understood")


class UpdateSeconds(Body):
    p50: Measure = Field(description="the median, to within 10 %; null before the first change")
    p99: Measure = Field(description="the 99th percentile, to within 10 %; null before the first change")


class DelaySteps(Body):
    max: Count = Field(description="largest number of steps between two rows")


class Statistics(Body):
    model_config = ConfigDict(extra="allow")
    intervals: Count = Field(description="entries in the view's structures")
    bytes: Count = Field(description="memory of its structures at the newest version, with a share of common ones, without relations' rows")
    bytes_per_row: Measure = Field(description="`bytes` divided by the rows of the view's relations")
    groups: Measure = Field(description="groups that have rows, including those that HAVING excludes; null without groups")
    sums_out_of_range: Measure = Field(description="sums that are null because they do not fit their type; null without groups")
    texts_too_long: Measure = Field(description="lists of values that are null because they are longer than 64 KiB; null without groups")
    bits_per_tuple: Measure = Field(description="size of quadtrees in their compact form, without the slots of rows")
    update_seconds: UpdateSeconds = Field(description="how long the view takes to follow a version, in seconds, since it was built")
    steps_per_update: Measure = Field(description="steps for the delta of a changed row, the rows of the delta included")
    flips_per_update: Measure = Field(description="rows or prefixes that a changed row made live or dead")
    rows_read: Count = Field(description="rows read by all readers since the view was built")
    steps_per_row: Measure = Field(description="nodes, entries and candidates that readers visited, per row")
    delay_steps: DelaySteps = Field(description="work between two rows of a reading")
    dead_ends: int | None = Field(
        description="nodes, rows and candidates visited without result; null: interval-tree, box-tree count only candidates"
    )
    counters: dict[str, Count] = Field(
        description="further counts of the algorithm in all readings, by name; tree-tracker: lookups, removed, no_goods, forgotten; "
        "minesweeper and elimination: probes, outputs, pairs (of a triangle), lookups, constraints, resets, forgotten; intersect: lookups, "
        "probes, outputs; bow-tie: these, ranges (the most that waited, summed over readings), forgotten; lqdag: looked_up, excluded, and "
        "with UNION or EXCEPT repeated (rows that an earlier SELECT had)"
    )


class TreeEdge(Body):
    aliases: list[str] = Field(description="the two aliases")
    by: list[str] = Field(description="the variables that they have in common")


class RowBound(Body):
    exponent: float = Field(description="exponent of n, if all relations have n rows")
    rows: float | Absent = Field(None, description="maximum number of rows of the view, for relations of their present size")
    cover: dict[str, float] = Field(description="weight x of each alias: the product of all |R|^x is the bound")


class NaturalJoin(Body):
    cls: str = Field(alias="class", description="the class, as in the plans")
    variables: dict[str, list[str]] = Field(
        description="columns that must be equal, named by the first one; several columns of an alias (`a.x a.y`) form a composite"
    )
    elimination_order: list[str] | None = Field(description="nested, of the variables; null: not beta-acyclic")
    join_tree: list[TreeEdge] | None = Field(
        description="edges of the join tree: two aliases and their common variables; null: cyclic, or a product"
    )
    agm: RowBound = Field(description="the bound of Atserias, Grohe and Marx on the number of rows")


_INPUTS = "what it reads, each with the average time, in seconds, to follow one inserted or deleted row of it; null: none has changed"


class Stored(Body):
    name: str = Field(description="its name, which begins with ~: equal queries have the same one")
    query: str = Field(description="the query, in SQL; a name that begins with ~ means another one that is stored")
    inputs: dict[str, Measure] = Field(description=_INPUTS)
    cls: str = Field(alias="class", description="the class of its join")
    algorithm: str = Field(description="what maintains it")
    guarantee: str = Field(description="the guarantee of its own changes")
    rows: Count | None = Field(description="the number of its rows; null: unknown")
    bytes: Count | None = Field(description="the memory of its rows and structures; null: unknown")


class Explanation(Body):
    plan: Plan = Field(description="the plan that a registration would choose")
    alternatives: list[Plan] = Field(description="the plans of the other algorithms that are correct for the view")
    reads: list[Name] = Field(description="the views that the definition names")
    stored: list[Stored] = Field(description="the queries in FROM that would be stored; of rows and bytes, an estimate")
    natural: NaturalJoin | Absent = Field(None, description="properties of a join on equalities only")
    measured: dict[str, Statistics] | Absent = Field(None, description="live views with this definition, by name")


class ShapeAlias(Body):
    name: Name = Field(description="the alias")
    relation: Name = Field(description="its relation; the alias itself if it is a query that is stored")
    key: list[str] = Field(description="the columns of the relation's primary key")
    join_key: list[str] = Field(description="the columns that are joined by equality with other aliases")
    optional: bool = Field(description="whether the alias can be missing in a row, as on the optional side of a LEFT JOIN")


class ShapeColumn(Body):
    name: str = Field(description="the name of the column")
    kind: str = Field(
        description="`column` (of an alias), `intersection_start`, `intersection_end`, `gaps_start`, `gaps_end`, `coverage_start`, "
        "`coverage_end`, `duration`, or `computed`"
    )
    alias: str | None = Field(description="the alias of the column; null if it is computed")


class ShapeInterval(Body):
    alias: Name = Field(description="the alias of the interval")
    interval: Name = Field(description="the name of the interval in its relation")
    type: str = Field(description="the type of its ends; `decimal` with precision and scale")
    bounds: str = Field(description="which ends belong to the interval")


class ShapeKey(Body):
    alias: Name = Field(description="the alias whose join key divides the rows into lanes")
    columns: list[str] = Field(description="the columns of this join key")


class Shape(Body):
    aliases: list[ShapeAlias] = Field(description="the aliases that a row has")
    columns: list[ShapeColumn] = Field(description="columns of the rows")
    dimensions: list[list[ShapeInterval]] = Field(description="joined intervals, grouped by those that overlap one another")
    key: ShapeKey | None = Field(description="key of the lanes of windows")


class Replacement(Body):
    progress: Share | Absent = Field(None, description="how much of the new views is built, from 0 to 1")
    problem: Problem | Absent = Field(None, description="why it has failed: the view stays as it is")


class View(Body):
    name: Name = Field(description="the name of the view")
    state: Literal["building", "live", "failed"] = Field(
        description="`building`: not readable yet; `live`: readable, and maintained with each change; `failed`: no longer, see `problem`"
    )
    version: AtVersion
    empty: bool | None = Field(description="null if it is not live, if that takes over a second, and, in a list, if rows must be read")
    definition: ViewDefinition = Field(description="the definition as it was registered")
    reads: list[Name] = Field(description="the views that the definition names")
    read_by: list[Name] = Field(description="the views whose definitions name this one")
    inputs: dict[str, Measure] = Field(description=_INPUTS)
    stored: list[Stored] = Field(description="the queries in FROM, at any depth, that are stored for the view; equal ones only once")
    plan: Plan = Field(description="how the view is maintained")
    shape: Shape = Field(description="the structure of its rows; all parts are empty if the definition is no longer accepted")
    statistics: Statistics = Field(description="what its structures hold, and what changes and readings have cost since it was built")
    progress: Share | Absent = Field(None, description="how much of the view is built, from 0 to 1, while it is `building`")
    replacement: Replacement | Absent = Field(None, description="the definition that replaces it, while it is built, or has failed")
    problem: Problem | Absent = Field(None, description="why the view is `failed`")


class Views(Body):
    views: list[View] = Field(description="the views that the access token covers, by name")


# Rows and their changes


class Page(Body):
    version: AtVersion
    rows: list[Row] = Field(description="the rows, at most `limit`: column → value")
    next: str | None = Field(description="the `cursor` of the next page, valid for 60 s (`--pin-idle`); null if there are no more rows")


class AnalyzedDelay(Body):
    max: Count = Field(description="the largest")
    mean: float = Field(description="`steps` divided by the rows and one")


class Analysis(Body):
    version: AtVersion
    row_count: Count = Field(description="the number of rows")
    steps: Count = Field(description="nodes, entries and candidates visited")
    delay_steps: AnalyzedDelay = Field(description="steps before the first row, between two rows, and behind the last one")
    dead_ends: int | None = Field(description="as in the statistics of the view")
    counters: dict[str, Count] = Field(description="as in the statistics of the view, of this reading")
    seconds: float = Field(description="the time that it took")


class RowCount(Body):
    version: AtVersion
    count: Count = Field(description="the number of rows")


class Reading(Body):
    id: str = Field(description="the id by which DELETE /v1/readings/{id} ends the reading")
    version: Count = Field(description="the version that all parts are read at")
    token: str | None = Field(
        description="what to pass as `since` in order to follow the view from this version on; null if the view keeps no changes"
    )
    cursors: list[str] = Field(description="one cursor for each part; together they give every row once")
    expires: datetime = Field(description=f"when the version is released if no further request comes, {TIME}")


class ChangesEnd(Body):
    version: Count = Field(description="the last version of these changes")
    token: str = Field(description="the token of this version, to pass as `until`, and then as `since`")
    rows: Count = Field(description="changes up to `version`")


# Operations


class Token(Body):
    name: str = Field(description="the name of the token, which lists and the audit log show")
    scope: Scope = Field(description="what it allows: `read`; `write`, which includes `read`; `admin`, which is everything")
    relations: list[str] = Field(description="the relations that it is for; `*` for all")
    views: list[str] = Field(description="the views that it is for; `*` for all")
    expires: datetime | None = Field(description=f"when it becomes invalid, {TIME}; null: never")
    created: datetime = Field(description=f"when it was created, {TIME}")


class NewToken(Token):
    token: str = Field(description="the text to send as `Authorization: Bearer …`")


class Tokens(Body):
    tokens: list[Token] = Field(description="the tokens, by name, without their texts")


class Backup(Body):
    state: Literal["none", "running", "done", "failed"] = Field(
        description="`none`: there has been none since the start of the service; `running`, `done`, `failed`"
    )
    id: str | Absent = Field(None, description="id of this backup, also in its backup.json")
    target: str | Absent = Field(None, description="the folder in which it is made")
    since: str | None = Field(None, description="the folder of the earlier backup on which it builds; null if it is a full one")
    started: datetime | Absent = Field(None, description=f"when it was begun, {TIME}")
    ended: datetime | Absent = Field(None, description=f"when it was done or had failed, {TIME}")
    progress: Share | Absent = Field(None, description="how much is written, from 0 to 1; it is 1 only once the backup is done")
    version: Count | Absent = Field(None, description="the version that the backup contains, once it is complete")
    bytes: Count | Absent = Field(None, description="bytes written, once it is complete")
    problem: str | Absent = Field(None, description="why it failed")
    previous: Backup | Absent = Field(None, description="the backup before this one")


class Health(Body):
    status: str = Field(description="`alive` or `ready`")
    stage: str | Absent = Field(None, description="what the service is doing until it is ready; then `ready`")
    progress: float | Absent = Field(None, description="how much of this stage is done, from 0 to 1")
