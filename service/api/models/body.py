"""What the models of bodies are made of. Most of them only document: the service writes answers as bytes, without a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema, SkipJsonSchema, models_json_schema

from livejoin.wire.schema import NAME

TIME = "by RFC 3339, in UTC"

Absent = SkipJsonSchema[None]
"""A field that may be missing, but is not null."""
Count = Annotated[int, Field(ge=0)]
Version = Annotated[int, Field(ge=0, lt=2**63)]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0)]
Measure = Annotated[float, Field(ge=0)] | None
Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
Row = dict[str, Any]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class _UntitledSchemas(GenerateJsonSchema):
    """Generates pydantic's schemas without a title for each field, and without the default of a field that may be missing."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        made = super().default_schema(schema)
        if made.get("default", ...) is None and {"type": "null"} not in made.get("anyOf", ()):
            del made["default"]
        return made


def ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def schemas(models: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """Return the schemas of models, and of those within, by name."""
    template = "#/components/schemas/{model}"
    made = models_json_schema([(one, "validation") for one in models], ref_template=template, schema_generator=_UntitledSchemas)
    named: dict[str, Any] = made[1]["$defs"]
    return named
