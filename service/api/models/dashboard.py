"""The models of what the dashboard reads: the state of the service, and the windows of a view."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from service.access.access_token import Scope
from service.api.models.answers import AtVersion
from service.api.models.body import TIME, Absent, Body, Count, Measure, Name, Row, Seconds, Share
from service.query.model import Guarantee


class Software(Body):
    name: str = Field(description="`livejoin`")
    version: str = Field(description="its release")


class CurrentToken(Body):
    needed: bool = Field(description="whether the service is in token mode")
    name: str = Field(description="the name of the token; empty outside token mode")
    scope: Scope = Field(description="what the token allows")
    covers_all: bool = Field(description="whether it is for all relations and views")


class RelationState(Body):
    rows: Count = Field(description="the number of rows")
    bytes: Count = Field(description="memory of the rows")


class FeedState(Body):
    changes: Count = Field(description="rows inserted and deleted since the service was started, whether still kept or not")
    subscribers: Count = Field(description="the number of followers")
    lag: Count = Field(description="versions by which the slowest follower is behind; 0 if no follower has changes to read")
    rows: Count = Field(description="the number of changes that are kept")
    bytes: Count = Field(description="memory of these")


class ViewState(Body):
    state: Literal["building", "live", "failed"] = Field(description="as in `View`")
    progress: Share = Field(description="how much of the view is built, from 0 to 1")
    cls: str = Field(alias="class", description="the class of its query, as in `Plan`")
    algorithm: str = Field(description="the algorithm that maintains it")
    guarantee: Guarantee = Field(description="as in `Plan`")
    bytes: Count = Field(description="memory of its structures, as `statistics.bytes` of `View`")
    update_p99_seconds: Measure = Field(description="the 99th percentile, to within 10 %; null before the first change")
    feed: FeedState | None = Field(description="the changes kept for followers; null if the view keeps none")


class Memory(Body):
    resident: Count = Field(description="memory of the process; if the system does not tell, the most so far")
    relations: Count = Field(description="memory of rows")
    views: Count = Field(description="memory of the structures of views")
    changes: Count = Field(description="memory of changes that are kept for followers")
    old_versions: Count = Field(description="memory that only older versions need, or that is being reclaimed")
    bodies: Count = Field(description="memory that request bodies hold")


class Snapshot(Body):
    version: Count = Field(description="its version")
    time: datetime = Field(description=f"when it was written, {TIME}")
    bytes: Count = Field(description="its size")


class Disk(Body):
    log: Count = Field(description="the log, including SQLite's WAL")
    snapshots: Count = Field(description="all snapshots")
    other: Count = Field(description="all other files of the folder")
    size: Count = Field(description="the size of the disk")
    free: Count = Field(description="what users other than root can still write")
    snapshot: Snapshot | None = Field(description="the newest snapshot; null if there is none")


class Warning(Body):
    text: str = Field(description="what is wrong, and what to do")
    view: Name | Absent = Field(None, description="the view that it is about; absent if it is about none")


class PinState(Body):
    version: Count = Field(description="the version")
    behind: Count = Field(description="how many versions are newer")
    readers: Count = Field(description="how many readers hold it")
    reading: str = Field(description="what the one that has been idle for longest reads; empty if unknown")
    idle_seconds: Seconds = Field(description="for how long that one has been idle, in seconds")
    age_seconds: Seconds = Field(description="for how long the version has been held, in seconds")


class ReaderState(Body):
    name: str = Field(description="the name that the reader gives in the header `Livejoin-Reader`, such as that of a query on Spark")
    view: Name = Field(description="the view that it reads")
    version: Count = Field(description="the version up to which it has requested the view")
    behind: Count = Field(description="how many versions are newer; 0 if none of them changes the view")
    idle_seconds: Seconds = Field(description="time since its last request, in seconds")


class ProblemState(Body):
    time: datetime = Field(description=f"when it last happened, {TIME}")
    times: Annotated[int, Field(ge=1)] = Field(
        description="how often this type has happened on this path; the other fields are those of the last time"
    )
    status: int = Field(description="the HTTP status")
    method: str = Field(description="the method of the request")
    path: str = Field(description="the path of the request, at most 500 characters")
    type: str = Field(description="the type of the problem, the end of its `type` in `Problem`")
    detail: str = Field(description="what was wrong, at most 500 characters")
    request_id: str = Field(description="the id of the request, which its lines in the log have too")


class Status(Body):
    state: Literal["recovering", "ready", "failed", "closed"] = Field(
        description="`recovering`: relations can be read and written, views are still built; `ready`; `failed`: the service has to be "
        "started again; `closed`: it is ending"
    )
    time: datetime = Field(description=f"when this was read, {TIME}")
    version: AtVersion
    timeline: Count = Field(
        description="the number of the data folder's timeline; restoring a backup and repairing the folder begin a new one"
    )
    software: Software = Field(description="what answers")
    uptime_seconds: Seconds = Field(description="time since the process was started, in seconds")
    ready_after_seconds: Measure = Field(description="how long the start took until `/readyz` said so, in seconds; null until then")
    synchronous: Literal["full", "normal"] = Field(
        description="whether an acknowledged batch survives a power failure (`full`) or only a crash of the process (`normal`)"
    )
    max_body: Count = Field(description="the largest body of a request, in bytes (`--max-body`)")
    token: CurrentToken = Field(description="the access token of this request")
    relations: dict[str, RelationState] = Field(description="the relations that the token covers, by name")
    views: dict[str, ViewState] = Field(description="the views that the token covers, by name")
    figures: dict[str, int] = Field(
        description="the metrics that are whole numbers, by their names in `/metrics` without `livejoin_` and `_total`"
    )
    memory: Memory = Field(description="memory of the service, in bytes, of whatever relations and views")
    disk: Disk = Field(description="the data folder and its disk, in bytes, at most some seconds old")
    warnings: list[Warning] = Field(description="what an operator should look at")
    readers: list[ReaderState] = Field(description="readers that give their name, of the last hour, the newest first, at most 50")
    pins: list[PinState] | Absent = Field(None, description="the versions that readers hold, at most 50; only for unrestricted tokens")
    problems: list[ProblemState] | Absent = Field(
        None, description="the recent problems, the newest first, at most 50; only for unrestricted tokens of the scope admin"
    )


_End = float | str | None


class MostEnds(Body):
    start: _End = Field(description="where it begins")
    end: _End = Field(description="where it ends")


class Extent(Body):
    start: _End = Field(description="the least end; null without rows")
    end: _End = Field(description="the greatest end; null without rows")
    most: MostEnds | None = Field(description="the range without the outermost hundredth on either side; null without rows")


class WindowKeys(Body):
    columns: list[str] = Field(description="the columns of the join key")
    begin: Count = Field(alias="from", description="the number of the first lane's key, from 0")
    of: Count = Field(description="the number of keys found")
    whole: bool = Field(description="whether all rows of the relation were looked at, so that these are all keys")


class RowEnds(Body):
    start: _End = Field(description="the start of the interval; null if it is unbounded, or if the alias is missing")
    end: _End = Field(description="the end of the interval; null if it is unbounded, or if the alias is missing")


class WindowRow(Body):
    key: dict[str, dict[str, Any] | None] = Field(
        description="the identity of the row, as in its changes: the key of each alias, null for a missing one"
    )
    ends: dict[str, dict[str, RowEnds]] = Field(description="the ends of the joined intervals, by alias and interval")
    row: Row = Field(description="a row: column → value")


class Lane(Body):
    key: dict[str, Any] | None = Field(description="the values of the join key; null for the lane with all rows")
    more: bool = Field(description="whether there are more rows than `limit` allows")
    rows: list[WindowRow] = Field(description="the rows of the lane")


class Window(Body):
    version: AtVersion
    extent: list[Extent] | Absent = Field(
        None, description="with `extent`: for each dimension of `shape` in `View`, the range of the ends in a sample of rows"
    )
    keys: WindowKeys | Absent = Field(None, description="with `keys`: what the lanes were chosen from")
    lanes: list[Lane] = Field(description="one lane for each key, or one with all rows")
