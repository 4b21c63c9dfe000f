"""Outbound: a view's changes to a Kafka topic, each once for a `read_committed` reader, across any number of restarts.

    GET /v1/views/{view}/changes ──► one transaction: the records of whole versions, and the token to resume from

At a start, after all that could refuse it, first `init_transactions` aborts what a former publisher left open, then the
last token is read: so it is that of the last committed transaction. When a token has expired (it survives restarts of
the service), the topic is read back, which gives the rows that its readers have, and compared with the view; the
difference and the new token are one transaction.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import IO, Literal

from streaming.config import Kafka, OutSection
from streaming.connection import Service
from streaming.errors import StreamError
from streaming.kafka_client import FoundTopic, KafkaUnavailable, wait_for_topics
from streaming.metrics import Metrics
from streaming.patience import Patience, Stopped
from streaming.publishing.feed import IDLE_SECONDS, Change, ChangesLost, Feed, FeedInterrupted, Progress, token_of_now
from streaming.publishing.own_topic import OwnTopic, Position, Token, digest, same_row
from streaming.publishing.transactions import Transactions

_LOOK_SECONDS = 1.0  # between two looks whether the topic is still the same
_SHARED = 1000  # records; a transaction with fewer takes along the versions that have come already
_HELD_BYTES = 64 << 20  # changed rows held in memory during a comparison; beyond this in a temporary file

log = logging.getLogger("livejoin.publisher")


class Publisher:
    """One `[[out]]`. A version never spans two transactions: at most 64 MiB of it are buffered here, the rest is at the broker.

    `stop` ends it at once, `enough` as soon as the topic has everything that is in the view by then.
    """

    def __init__(
        self, kafka: Kafka, service: Service, out: OutSection, stop: threading.Event, enough: threading.Event, metrics: Metrics
    ) -> None:
        self._kafka, self._service, self._out, self._stop, self._metrics = kafka, service, out, stop, metrics
        self._enough = enough
        self._waits: dict[str, Patience] = {}  # since the last record that was committed
        self._since: str | None = None  # up to this the topic has everything; None: to be found out by comparing
        self._identity: FoundTopic
        self._looked = 0.0  # when the topic was last seen to be that one
        self._followed = True  # a version, or nothing new, came since the last comparison
        self._transactions: Transactions
        self._own: OwnTopic

    def run(self, ask: Callable[[Service], object] = lambda service: None) -> None:
        """Publishes until `stop` is set (what is not committed then is aborted) or `enough`. Raises StreamError.

        `ask`, before each producer, raises it if another job is to publish. Waits for an unavailable service or broker. A lost transaction
        is repeated completely, by a new producer.
        """
        try:
            while True:
                try:
                    self._publish(ask)
                    return
                except KafkaUnavailable as error:
                    self._wait("kafka", f"the topic {self._out.topic} cannot be published to ({error})")
        except Stopped:
            return

    def _wait(self, at: Literal["kafka", "service"], reason: str) -> None:
        self._waits.setdefault(at, Patience(self._stop, self._metrics, at)).wait(reason)

    def _publish(self, ask: Callable[[Service], object]) -> None:
        """Publishes with one producer, until it fails or has published enough."""
        wait_for_topics(self._kafka, [self._out.topic], self._stop, self._metrics)
        with ExitStack() as stack:
            self._own = stack.enter_context(closing(OwnTopic(self._kafka, self._out, self._stop)))
            self._identity, self._looked = self._own.identity(), time.monotonic()
            # What ends this job must not end the one that publishes, which the new producer fences.
            ask(self._service)
            with suppress(FeedInterrupted):
                token_of_now(self._service, self._out.view)
            self._own.make_token_topic()
            self._require_own(self._own.last_token())
            self._transactions = stack.enter_context(closing(Transactions(self._kafka, self._out.topic, self._stop, self._metrics)))
            is_resumed = False
            while True:
                try:
                    if not is_resumed:
                        self._resume()
                        is_resumed = True
                    elif self._since is None:
                        self._compare()
                    elif self._follow(self._since):
                        return
                except ChangesLost as lost:
                    self._transactions.abort()
                    self._since = None
                    emitted = "the token of the topic %s has expired (%s): reading the topic back to publish the difference"
                    log.warning(emitted, self._out.topic, lost)
                    if not self._followed:
                        more = 'a larger "changes" limit of the view may help'
                        self._wait("service", f"the changes of {self._out.view} expire before they can be followed: {more}")
                    self._followed = False
                except FeedInterrupted as error:
                    self._transactions.abort()
                    self._wait("service", f"the stream of the changes of {self._out.view} was interrupted ({error})")

    def _resume(self) -> None:
        """Finds the position of the topic."""
        view, topic = self._out.view, self._out.topic
        last = self._own.last_token()
        if last is not None and not self._require_own(last):
            log.warning("the topic %s was recreated: starting with every row", topic)
            last = None
        if last is None:
            self._since = None
            # With records in it, its position is unknown: it gets all rows that it lacks.
            if not self._out.snapshot and self._own.is_empty():
                now = token_of_now(self._service, view)
                self._commit(now)
                log.info("the topic %s starts after version %d of the view %s", topic, now.version, view)
            return
        self._since = last.token
        log.info("the topic %s continues after version %d of the view %s", topic, last.version, view)

    def _require_own(self, last: Token | None) -> bool:
        """Whether the token is of this topic, not of a former one of its name. Raises StreamError: this job cannot continue the topic."""
        view, topic, partitions = self._out.view, self._out.topic, self._identity.partitions
        if last is None or last.topic != self._identity.id:
            return False
        if last.view != view:
            raise StreamError(f"the topic {topic} has the changes of the view {last.view}: use a separate topic for the view {view}")
        if last.partitions != partitions:
            raise StreamError(
                f"the topic {topic} had {last.partitions} partitions and now has {partitions}, so the changes of a key would have "
                "no defined order: delete it, recreate it with the desired number, and start again; it then starts with every row"
            )
        return True

    def _follow(self, since: str) -> bool:
        """Publishes the changes after a token, until there were none for a second; with `enough`, those that exist. Returns whether
        that was all of it.

        A transaction ends with a version: the first after which it holds 1000 records or nothing more has come yet.
        """
        last = self._enough.is_set()  # before it connects: everything applied by then is included
        with closing(Feed(self._service, self._out.view, since, IDLE_SECONDS if not last else 0)) as feed:
            at = None
            for piece in feed:
                for record in piece:
                    if isinstance(record, Change):
                        self._put(record.version, b"d" if record.deleted else b"c", record.key, record.row)
                self._check_stop()
                at = piece[-1]
                if isinstance(at, Progress) and not (self._transactions.records < _SHARED and feed.more):
                    self._arrive(at)
                    if self._enough.is_set() and not last:  # a view that keeps changing must not keep us
                        break
            if isinstance(at, Progress):
                self._arrive(at)
        return last

    def _arrive(self, at: Progress) -> None:
        """Completes a version in the topic. If nothing is new, this only checks the topic."""
        self._check_topic()
        if self._transactions.records:
            self._commit(at)
        self._since = at.token
        self._followed = True
        self._waits.clear()

    def _commit(self, at: Progress) -> None:
        """Commits the records, with the token. Raises KafkaUnavailable when the topic has been replaced since."""
        self._check_topic()
        records = self._transactions.records
        token = Token(self._out.view, at.version, at.token, *self._identity)
        self._transactions.put(self._own.token_topic, self._out.topic.encode(), token.to_json(), partition=0)
        self._transactions.commit()
        self._since = at.token
        self._metrics.published(self._out.topic, records, at.version)

    def _check_topic(self) -> None:
        """At most one request per second; a topic that was recreated or has other partitions starts again."""
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            if self._own.identity() != self._identity:
                raise KafkaUnavailable("it was recreated, or its number of partitions has changed")
            self._looked = time.monotonic()

    def _put(self, version: int, op: bytes, key: bytes, row: bytes) -> None:
        before, after = (row, b"null") if op == b"d" else (b"null", row)
        self._transactions.put(self._out.topic, key, b'{"op":"%b","version":%d,"before":%b,"after":%b}' % (op, version, before, after))
        if op == b"d" and self._out.tombstones:
            self._transactions.put(self._out.topic, key, None)

    def _compare(self) -> None:
        """Brings the topic, whatever it contains, to the current state of the view: an empty topic gets every row.

        Reads the whole topic, twice if a row was deleted or changed. Memory grows with the number of rows in the topic.
        """
        states = self._own.states()
        held = len(states)
        with tempfile.SpooledTemporaryFile(_HELD_BYTES) as changed:
            at, new = self._put_new(states, changed)
            for key, row in self._own.records_of(states):
                self._put(at.version, b"d", key, row)
            changed.seek(0)
            again, lines = 0, iter(changed)
            for key, row in zip(lines, lines, strict=True):
                self._put(at.version, b"r", key[:-1], row[:-1])
                again += 1
        self._commit(at)
        topic, view = self._out.topic, self._out.view
        if held:
            emitted = f"of {held} rows, {len(states) - again} were deleted and {again} changed; {new} were added"
        else:
            emitted = f"{new} rows"
        log.info("the topic %s holds the view %s at version %d: %s", topic, view, at.version, emitted)

    def _put_new(self, states: dict[bytes, Position], changed: IO[bytes]) -> tuple[Progress, int]:
        """Publishes the rows of the view that the topic lacks, returns their number; leaves in `states` those that differ or are gone, and
        in `changed` key and row of what they are now, a line each."""
        new = 0
        with closing(Feed(self._service, self._out.view, None)) as feed:
            for piece in feed:
                self._check_stop()
                for record in piece:
                    if isinstance(record, Progress):
                        return record, new
                    name = digest(record.key)
                    position = states.get(name)
                    if position is None:
                        self._put(record.version, b"r", record.key, record.row)
                        new += 1
                    elif same_row(position, record.row):
                        del states[name]
                    else:
                        changed.write(record.key + b"\n" + record.row + b"\n")
        raise FeedInterrupted("it ended in the middle of its rows")

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped
