"""The part of the table in `modes.py` for structures over event trees and their lists, with the bugs that are planted in them."""

from __future__ import annotations

from tests.structures.planted import PIN_IGNORED, Canary, Structure

EVENTS = {
    "match": Structure(
        "event_tree.machine.MatchMachine",
        ("tests/structures/event_tree/test_tree.py",),
        "not tens_of_thousands",
        (
            # An END before the rows that its interval still meets; the rows behind the last event forgotten.
            Canary("structures.event_tree.changes", "end_position", "lambda key, right: (key, right)"),
            Canary("structures.event_tree.search", "dead_in_leaf", "lambda tree, o, depth, next_key, next_at: was(tree, o, depth, -1, 0)"),
            Canary("structures.event_tree.search", "precedes", "lambda key, at, other, its: key <= other"),
            Canary(
                "structures.event_tree.summary",
                "note",
                "lambda tree, o, f, c, value: was(tree, o, f, c, value) if f != TRAIL_END else False",
            ),
            Canary("structures.event_tree.runs", "find_dead", "lambda tree, base: was(tree, 0)"),
            Canary("structures.event_tree.runs", "join_hits", "lambda tree, lists, scratch, partner: 0"),
            Canary("structures.event_tree.search", "partners", "lambda tree, key, left, right: was(tree, key, left, left)"),
            Canary(
                "structures.event_tree.runs",
                "position_of_row",
                "lambda tree, key, left, right, slot, base: was(tree, key, left, left, slot, base)",
            ),
            Canary("structures.event_tree.runs", "enlist", "lambda lists, row: None"),
            Canary("structures.event_tree.runs", "move", "lambda tree, lists, emits_matched, is_outer, row, former: True"),
            Canary("structures.event_tree.changes", "belongs", "lambda tree, name, at: True"),
            # The fields of nodes that are evened out or halved stay as they are; so do those of all others.
            Canary("structures.event_tree.changes", "refresh", "lambda tree, o, c, leaf: None"),
            Canary(
                "structures.event_tree.changes",
                "climb",
                "lambda tree, child, extra, leaf: was(tree, child, extra, leaf) if extra else None",
            ),
            # What only deepens a node taken for no change of it; a row that begins to fit, or ends to, taken for one that does not.
            Canary(
                "structures.event_tree.changes",
                "climb",
                "lambda tree, child, extra, leaf: (tree.control.__setitem__(9, 0), was(tree, child, extra, leaf))[1]",
            ),
            Canary("structures.event_tree.changes", "may_fit", "lambda tree, o, p: False"),
            Canary("structures.event_tree.search", "child_for", "lambda tree, o, name, at: 0"),
            Canary("structures.ordered.tree", "own_leaf", "lambda nodes, writing, o: o"),
            PIN_IGNORED,
        ),
    ),
    "outer": Structure(
        "outer.machine.CountsMachine",
        ("tests/structures/outer/test_counts.py",),
        "not tens_of_thousands",
        (
            # What a row's own pairs do flips it; a row goes, comes or moves without a look at its count; a move that is told to nobody.
            Canary(
                "structures.outer.changes",
                "begin_versions",
                "lambda own, state, counts, flips, n, until: was(own, state, counts, flips, n, 1 << 62)",
            ),
            Canary("structures.outer.changes", "note", "lambda flips, n, at, slot: was(flips, n, at, slot) if slot >= 0 else n"),
            Canary("structures.outer.changes", "note", "lambda flips, n, at, slot: was(flips, n, at, slot) if at != SILENT else n"),
            Canary("structures.outer.changes", "note", "lambda flips, n, at, slot: was(flips, n, at, slot) if at != FEW else n"),
            Canary(
                "structures.outer.changes",
                "put",
                "lambda nodes, writing, s, key, left, right, slot: was(nodes, writing, s, key, left, left, slot)",
            ),
            Canary("structures.outer.changes", "cut", "lambda nodes, writing, s, key, left, slot: True"),
            Canary("structures.outer.counts", "counts_of", "lambda rows, partners: was(rows, rows)"),
            Canary("structures.ordered.tree", "own_leaf", "lambda nodes, writing, o: o"),
            PIN_IGNORED,
        ),
    ),
    "counting": Structure(
        "event_tree.counting_machine.CountingMachine",
        ("tests/structures/event_tree/test_counting.py",),
        "not tens_of_thousands",
        (
            Canary("structures.event_tree.changes", "end_position", "lambda key, right: (key, right)"),
            # Sums that are stale, of the wrong half, or of a row that is its own partner.
            Canary("structures.event_tree.summary", "weigh_leaf", "lambda tree, o, c, w: was(tree, o, c, 0)"),
            Canary("structures.event_tree.summary", "sum_fields", "lambda tree, o, c, low, high: None"),
            Canary("structures.event_tree.changes", "add_above", "lambda tree, o, p, sign: was(tree, o, p, 1)"),
            Canary("structures.event_tree.summary", "count_leaf", "lambda tree, o, c: False"),
            Canary("structures.event_tree.sums", "give", "lambda tree, both, changes, i: None"),
            Canary("structures.event_tree.counting", "overlong_of", "lambda recipes, itself, words: []"),
            Canary("structures.event_tree.sums", "cut_ends", "lambda tree, key, left, right, slot: True"),
            Canary("structures.event_tree.sums", "covered", "lambda tree, key, at, t, totals: was(tree, key, at, at, totals)"),
            Canary("structures.event_tree.sums", "put_digits", "lambda sums, i, step, low, high: was(sums, i, step, low, 0)"),
            Canary(
                "structures.event_tree.sums",
                "add_partners",
                "lambda tree, key, begun, ended, totals: was(tree, key, begun, begun, totals)",
            ),
        ),
    ),
    "visits": Structure(
        "event_tree.visits_machine.VisitsMachine",
        ("tests/structures/event_tree/test_visits.py",),
        "not tens_of_thousands",
        (
            Canary("structures.event_tree.visits", "take_out", "lambda nodes, writing, s, key, left, slot: True"),
            Canary("structures.event_tree.visits", "measure", "lambda tree, both, changes, i, measured: None"),
            Canary("structures.event_tree.visits", "change_partner", "lambda inputs, changes, i: None"),
            Canary("structures.event_tree.visits", "give", "lambda tree, both, changes, i: None"),
            Canary("structures.event_tree.visits", "overlong_of", "lambda recipes, itself, words: []"),
        ),
    ),
}
