"""What people see of relations, views and plans."""

from __future__ import annotations

import asyncio
from html.parser import HTMLParser

import livejoin
from tests.client.hotel import Hotel, row
from tests.server_process import ServerProcess


def balanced(html: str) -> str:
    """The text of well-formed HTML."""
    open_tags: list[str] = []
    texts: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

        def handle_data(self, data: str) -> None:
            texts.append(data)

    Parser().feed(html)
    assert open_tags == []
    return " ".join(texts)


def test_a_relation(lj: livejoin.Client, hotel: Hotel) -> None:
    assert repr(lj.relation("a")) == f"<livejoin relation a at {lj.url}>", "nothing is asked for it"
    known = "(id int64, room string, s int64, e int64 null), key id, stay [s, e)"
    assert repr(hotel.bookings) == f"<livejoin relation {hotel.bookings.name} {known} at {lj.url}>"
    hotel.bookings.upsert([row(number, room="<b>&") for number in range(12)])
    text = balanced(hotel.bookings._repr_html_())
    assert "12 rows" in text and known in text and "<b>&" in text and "…" in text
    wide = lj.relation("display_wide").create(
        {"at": {"type": "timestamp", "zone": "Europe/Berlin"}, "p": {"type": "decimal", "precision": 9, "scale": 2}}, "at", {"point": "at"}
    )
    assert "(at timestamp in Europe/Berlin, p decimal(9,2)), key at, point at at" in repr(wide)
    assert "no rows" in balanced(wide._repr_html_())


def test_a_view(lj: livejoin.Client, hotel: Hotel) -> None:
    hotel.bookings.upsert([row(1)])
    hotel.jobs.upsert([row(7)])
    view = lj.view(hotel.clashes.name)
    assert repr(view) == f"<livejoin view {view.name} at {lj.url}>"
    view.get()
    assert repr(view).startswith(f"<livejoin view {view.name}: live at version ") and "interval-tree, strict, at" in repr(view)
    text = balanced(view._repr_html_())
    assert "interval-tree" in text and "booking" in text and "…" not in text
    hotel.jobs.upsert([row(number) for number in range(20)])
    assert balanced(view._repr_html_()).endswith("…")
    assert "not-found" in balanced(lj.view("display_nowhere")._repr_html_()), "a notebook shows the problem"
    assert "clashes" in repr(view.rows()) and "iterate" in repr(view.arrow())


def test_an_explanation(lj: livejoin.Client, hotel: Hotel) -> None:
    found = lj.explain(hotel.sql)
    lines = str(found).splitlines()
    assert lines[0].startswith("class      interval join") and any(line.startswith("algorithm  interval-tree (") for line in lines)
    assert any(line.startswith("others     ") for line in lines) and any(line.startswith("measured   ") for line in lines)
    assert repr(found) == str(found) and found["plan"]["algorithm"] == "interval-tree"
    assert "interval-tree" in balanced(found._repr_html_())
    natural = lj.explain(f"SELECT * FROM {hotel.bookings.name} b JOIN {hotel.jobs.name} m ON b.room = m.room")
    assert "AGM" in str(natural) and "join tree" in str(natural)


def test_asyncio_has_no_html_that_nobody_awaits(shared_server: ServerProcess) -> None:
    async def run() -> None:
        async with livejoin.connect_async(shared_server.url) as lj:
            assert not hasattr(lj.relation("a"), "_repr_html_") and not hasattr(await lj.view("a"), "_repr_html_")

    asyncio.run(run())


def test_status_and_metrics(lj: livejoin.Client, hotel: Hotel) -> None:
    status = lj.status()
    assert status["relations"][hotel.bookings.name]["rows"] == 0 and status["views"][hotel.clashes.name]["state"] == "live"
    samples = lj.metrics()
    values = {(sample.name, sample.labels.get("view")): sample.value for sample in samples}
    assert values["livejoin_version", None] >= status["version"] and values["livejoin_view_bytes", hotel.clashes.name] > 0


def test_samples_of_all_forms() -> None:
    from livejoin.samples import Sample, samples

    text = '# HELP a x\na 1\nb{c="d",e="\\"\\\\ \\n,}"} 2.5e3\nh_bucket{le="+Inf"} +Inf\nnonsense\n'
    assert list(samples(text)) == [
        Sample("a", {}, 1.0),
        Sample("b", {"c": "d", "e": '"\\ \n,}'}, 2500.0),
        Sample("h_bucket", {"le": "+Inf"}, float("inf")),
    ]
