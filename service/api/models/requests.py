"""The models of what clients send, besides the definitions of relations, views and access tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, RootModel

from livejoin.wire.json import MAX_TEXT
from service.api.models.body import Absent, Body, Row, Version
from service.query.form_checks import Form
from service.query.forms import Entry, ExceptView, IntersectView, JsonView, SqlView, UnionAllView, UnionView

_Text = Annotated[str, Field(json_schema_extra={"maxLength": MAX_TEXT})]


class BatchForm(Form):
    """The fields of any batch."""

    what = "a batch"
    source: _Text | None = Field(
        None,
        description="the sender, which numbers its batches by `epoch`: a repeated batch is recognized as a duplicate. Requires `epoch`; "
        "names that begin with `livejoin.` are reserved for the service",
    )
    epoch: Annotated[int, Field(json_schema_extra={"format": "int64"})] | None = Field(
        None, description="the number of this batch, which increases within its source; requires `source`"
    )
    run: _Text | None = Field(
        None,
        description="who numbers the epochs, such as the id of a query; a different one than before is refused with `source-reset`, unless "
        "`reset` is true. Absent: a run of its own",
    )
    reset: bool = Field(False, description="whether a new `run` may take over the source; its epochs then start again. Requires `run`")
    on_error: Literal["reject", "skip"] = Field(
        "reject", description="`reject` the batch if a row is invalid, or `skip` invalid rows and return them"
    )


class Deletion(BatchForm):
    """The body of a delete by condition: `where` selects the rows, the other fields are those of any batch."""

    what = "a delete by condition"
    where: list[Entry] = Field(description="the conditions, at least one, all of which a row must meet to be deleted")
    on_error: Literal["reject", "skip"] = Field("reject", description="has no effect: there are no rows that could be invalid")


class Change(Body):
    relation: str = Field(description="the relation that changes")
    op: Literal["insert", "upsert", "delete", "truncate"] = Field(
        "upsert",
        description="`insert` requires a new key, `upsert` inserts or replaces the row with this key, `delete` needs only `key`, "
        "`truncate` deletes all rows of the relation",
    )
    row: Row | Absent = Field(None, description="a row: column → value")
    key: Row | Absent = Field(None, description="the key columns of a deleted row")


class Changes(BatchForm):
    changes: list[Change] = Field(description="the changes, in order")


class ViewDefinition(RootModel[SqlView | JsonView | UnionView | UnionAllView | IntersectView | ExceptView]):
    """A view, as SQL or as JSON."""

    model_config = ConfigDict(defer_build=True)


class StageCommit(Body):
    parts: list[Annotated[int, Field(ge=0)]] = Field(description="the numbers of the parts to commit")


_Window = Annotated[str, Field(pattern="^[^,]*,[^,]*$")]


class ReadingForm(Body):
    parts: int = Field(8, ge=1, le=1000, description="maximum number of parts")
    hold: int = Field(600, ge=1, le=3600, description="seconds to keep the version after the last request")
    version: Version | Absent = Field(None, description="a version that a cursor pins; default: the newest")
    name: Annotated[str, Field(pattern="^[A-Za-z0-9_.:-]{1,200}$")] | Absent = Field(
        None, description="by which several clients agree on a reading: the first request with it begins the reading, later ones return it"
    )
    where: str | Absent = Field(None, description="only rows for which this condition is true, as the parameter `where` of the rows")
    columns: list[str] | Absent = Field(None, description="only these columns of the rows, in this order")
    overlaps: _Window | dict[str, _Window] | Absent = Field(
        None, description="a window, `lo,hi`, as the parameter `overlaps` of the rows, or windows by what follows `overlaps.` there"
    )


class Query(Body):
    sql: str = Field(description="one SELECT, in DuckDB's dialect")
    version: Version | None = Field(None, description="a version that a cursor pins; default: the newest")


def _path(text: str) -> str:
    try:
        if text and "\0" not in text:
            text.encode()
            return text
    except UnicodeEncodeError:
        pass
    raise ValueError("must be the path of a folder on the server")


_Folder = Annotated[str, Field(max_length=4096), AfterValidator(_path)]


class BackupForm(Body):
    target: _Folder = Field(description="absolute path of a new or empty folder on the server")
    since: _Folder | Absent = Field(None, description="the folder of an earlier backup: only newer data is written")
