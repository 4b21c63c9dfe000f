"""What the structures' tests are run with once more: a table of each structure's suites, its state machine and its planted bugs (canaries).
The modes are those of `processes.py`; `test_modes.py` and the soak run them."""

from __future__ import annotations

from typing import NamedTuple


class Canary(NamedTuple):
    """A mistake that one could make: `bug`, a lambda with the same parameters, in place of the function; `was` is the function itself.

    seed: of examples that show it early, where the usual ones take long.
    """

    module: str
    function: str
    bug: str
    seed: int | None = None


class Structure(NamedTuple):
    """machine: room, module and class in `tests.structures`; suites: files, of which a mode runs what `small` (`-k`) selects."""

    machine: str
    suites: tuple[str, ...]
    small: str
    canaries: tuple[Canary, ...]


# What a pin holds is used again: each state machine is to notice.
_PIN_IGNORED = Canary("structures.core.blocks", "holder", "lambda pins, born, retired: -1")

# Those that share kernels (interval and join, clique and ij, view and index) are far apart: the first to run compiles them for both.
STRUCTURES = {
    "qdag": Structure(
        "qdag.machine.QdagMachine",
        ("tests/structures/qdag/test_qdag.py",),
        "not tens_of_thousands",
        (
            Canary("structures.quadtree.changes", "own_block", "lambda nodes, writing, h, o, level: o"),
            _PIN_IGNORED,
            Canary("structures.quadtree.changes", "grow", "lambda nodes, C, h, entries, e: True"),
            Canary("structures.quadtree.changes", "is_small", "lambda nodes, C, h, o, c, child: False"),
            Canary("structures.quadtree.compact", "pinned", "lambda pins, born, retired: False"),
            Canary("structures.quadtree.compact", "bytes_of", "lambda bits: (bits + 7) // 8"),
            Canary("structures.quadtree.compact", "low_bits", "lambda level, j, leading, code: 0"),
            Canary("structures.quadtree.changes", "level_below", "lambda level, bits: level - 1"),
            Canary("structures.qdag.run", "keep_roots", "lambda C, versions, v: None", 2),
            Canary("structures.qdag.walk", "agreeing", "lambda walking, t, some, coordinates, values, v: some", 7),
            Canary("structures.qdag.refs", "with_bit16", "lambda array, p, b: 0"),
            Canary(
                "structures.qdag.refs",
                "of_child",
                "lambda leaves, s, arity, leading, level, some, c: was(leaves, s, arity, 0, level, some, c)",
            ),
            Canary(
                "structures.quadtree.changes",
                "set_child",
                "lambda W, o, c, child: was(W, o, c, child) if child else W.__setitem__(2 * o + 4 + c, 0)",
            ),
            Canary("structures.qdag.refs", "highest", "lambda mask: 0"),
            Canary("structures.qdag.walk", "fill_others", "lambda walking, t, out, start, n: None"),
            Canary("structures.qdag.scan", "children_of", "lambda nodes, base, o, arity: 1", 2),
            Canary("structures.qdag.walk", "loaded", "lambda nodes, walking, t, ref, level: 1 if ref & 2**19 else ref"),
            # Of merges: a change meanwhile is lost; what the switch leaves behind is forgotten.
            Canary("structures.quadtree.merging", "replay", "lambda nodes, writing, t, entries, come: len(come)", 4),
            Canary(
                "structures.quadtree.trees",
                "drop_blocks",
                "lambda nodes, writing, way, budget: (way.state.__setitem__(0, 0), budget)[1]",
            ),
        ),
    ),
    "lqdag": Structure(
        "qdag.absent_machine.AbsentMachine",
        ("tests/structures/qdag/test_absent.py",),
        "not adds_no_joint_node",
        (
            Canary("structures.qdag.absent", "group_of", "lambda walking, u: 0"),
            Canary("structures.qdag.absent", "has_tuple", "lambda nodes, walking, t, at, level: False"),
            Canary("structures.qdag.absent", "quadrants", "lambda nodes, walking, t, ref, level: 0"),
            Canary("structures.qdag.absent", "settle", "lambda walking, g: was(walking, g) or True", 1),
            Canary("structures.qdag.walk", "has_live_tests", "lambda walking, g: False"),
            Canary("structures.qdag.absent", "bind", "lambda nodes, walking, t, count: 1"),
        ),
    ),
    "aggregate": Structure(
        "aggregate.machine.AggregateMachine",
        ("tests/structures/aggregate/test_groups.py",),
        "not tens_of_thousands",
        (
            Canary(
                "structures.aggregate.changes",
                "add_float",
                "lambda cells, code, w, limbs, bits, sign: was(cells, code, w, limbs, bits, sign) if sign > 0 else None",
            ),
            Canary("structures.aggregate.changes", "add_int", "lambda cells, code, w, value, sign: was(cells, code, w, value, 1)"),
            Canary("structures.aggregate.changes", "give_back", "lambda cells, code, w, limbs: None"),
            Canary("structures.aggregate.amounts", "add_digits", "lambda cells, code, w, amounts, i, step: None"),
            Canary("structures.aggregate.results", "fits_int64", "lambda s1, s2: True"),
            Canary("structures.aggregate.results", "bits_of", "lambda order: order"),
            Canary("structures.aggregate.values", "is_thin", "lambda tree, block: False"),
            Canary("structures.rows.succession", "differ", "lambda told, i, cells, slot: True"),
        ),
    ),
    "products": Structure(
        "aggregate.products_machine.ProductsMachine",
        ("tests/structures/aggregate/test_products.py",),
        "not more_rows_than_can_be_counted",
        (
            Canary(
                "structures.aggregate.products",
                "product",
                "lambda store, relations, key, one, other: was(store, relations, key, one, one)",
            ),
            Canary(
                "structures.aggregate.products",
                "put_product",
                "lambda sums, i, s, digits, times: was(sums, i, s, (*digits[:2], 0), times)",
            ),
            Canary("structures.aggregate.products", "add_int", "lambda cells, code, w, value, sign: was(cells, code, w, value, 1)"),
        ),
    ),
    "interval": Structure(
        "interval.machine.IntervalMachine",
        (
            "tests/structures/interval/test_tree.py",
            "tests/structures/core/test_encoding.py",
            "tests/structures/rows/test_rows.py",
            "tests/service/tables/test_store_twin.py",
            "tests/service/tables/test_store.py",
        ),
        "not tens_of_thousands and not delay and not pin and not sink_may_stop",
        (
            Canary("structures.ordered.tree", "own_leaf", "lambda nodes, writing, o: o"),
            Canary("structures.ordered.tree", "own_inner", "lambda nodes, writing, o: o"),
            Canary("structures.ordered.summary", "leaf_live", "lambda nodes, o, kind: False"),
            Canary("structures.ordered.summary", "_across", "lambda nodes, o, n, s, t: False"),
            Canary("structures.ordered.tree", "leaf_summary_without", "lambda nodes, C, o, s, key, right: None"),
            _PIN_IGNORED,
            Canary("structures.interval.walk", "wholly_before", "lambda nodes, o, c, key, left, code: True"),
            Canary("structures.interval.walk", "runs_across", "lambda nodes, state, target, t, own, other, n: n", 1),
            Canary("structures.interval.changes", "has_delta", "lambda sign: True"),
            Canary("structures.interval.changes", "without", "lambda slots, lo, hi, slot: hi"),
            Canary("structures.ordered.compaction", "set_child", "lambda W, o, c, child: None"),
            Canary("structures.ordered.leaves", "merged_prefix", "lambda nodes, o, m: min(m, nodes.W[2 * o + 2])"),
            Canary("structures.interval.tree", "clear", "lambda nodes, writing: make_empty(nodes, writing)"),
        ),
    ),
    "box": Structure(
        "box.machine.BoxMachine",
        ("tests/structures/box/test_tree.py",),
        "not tens_of_thousands and not delay and not pin and not width and not left_ends and not world and not ties",
        (
            Canary("structures.box.changes", "own_node", "lambda nodes, writing, o: o", 4),
            Canary("structures.box.changes", "own_records", "lambda nodes, writing, level, o: o"),
            Canary("structures.box.changes", "has_delta", "lambda sign: True"),
            Canary("structures.box.changes", "refresh", "lambda W, o: None"),
            Canary("structures.box.changes", "repair", "lambda nodes, writing, level, h, key, value, tie: None"),
            Canary("structures.box.changes", "activate", "lambda nodes, writing, level, node, i, box: None", 2),
            Canary("structures.box.changes", "as_point", "lambda nodes, writing, stack, n, level, o, s: n"),
            Canary("structures.box.changes", "count_rows", "lambda nodes, writing, o, level, single, tag, lo, hi: 0"),
            Canary("structures.box.balance", "drop_flat", "lambda nodes, writing, root, height: None"),
            Canary("structures.box.build", "sort_by", "lambda column, places, other: (places[np.argsort(abs(column)[places])], other)"),
            Canary("structures.box.balance", "unbalanced", "lambda W, o: W[2 * o + layout.WEIGHT] > layout.CAP"),
            Canary("structures.box.search", "push_points", "lambda nodes, state, single, level, dimensions, o, t: None"),
            Canary("structures.box.compaction", "set_root", "lambda W, h, o: None"),
            Canary("structures.box.walk", "goes_right", "lambda M, o, key, value, tie: key > M[o + 10]"),
            Canary("structures.box.tree", "clear", "lambda nodes, writing: plant(nodes, writing)"),
            _PIN_IGNORED,
        ),
    ),
    "clique": Structure(
        "clique.machine.CliqueMachine",
        ("tests/structures/clique/test_tree.py",),
        "not tens_of_thousands and not one_point",
        (
            Canary("structures.multiway.tree", "own", "lambda nodes, writing, o: o"),
            Canary("structures.multiway.summary", "summarise_clique", "lambda nodes, scratch, o: False"),
            Canary("structures.clique.changes", "has_delta", "lambda sign: True"),
            Canary("structures.clique.walk", "forget", "lambda walking, right: None", 3),
            Canary("structures.clique.walk", "pass_over", "lambda nodes, walking, o: None"),
            Canary("structures.clique.walk", "has_centre", "lambda nodes, walking, o: True"),
            Canary("structures.clique.walk", "push", "lambda walking, right, slot: None"),
            Canary("structures.clique.covers", "reaches", "lambda nodes, o, key, value: False"),
            Canary("structures.clique.covers", "pick_on", "lambda walking, before, picks: False"),
            _PIN_IGNORED,
        ),
    ),
    "view": Structure(
        "view_tree.machine.ViewMachine",
        ("tests/structures/view_tree/test_tree.py",),
        "not tens_of_thousands",
        (
            Canary("structures.view_tree.changes", "flip", "lambda nodes, writing, view, coordinates, start, sign, atom, common: None"),
            Canary("structures.view_tree.changes", "has_prefix", "lambda nodes, root, arity, coordinates, start, step, length: True"),
            Canary("structures.view_tree.changes", "forget", "lambda state: None"),
            Canary("structures.view_tree.tree", "recheck_all", "lambda nodes, writing, view, items, atom: None"),
            Canary("structures.view_tree.walk", "next_entry", "lambda nodes, root, arity, leaf, i: (0, 0)"),
            Canary("structures.view_tree.walk", "expect_leaf", "lambda nodes, o, arity, coordinates, start, length: o"),
            Canary("structures.view_tree.walk", "group_end", "lambda nodes, leaf, arity, i, coordinates, start, step, length: i + 1"),
            Canary("structures.view_tree.walk", "settle", "lambda nodes, plans, first, roots, coordinates, start, state, q: q >= 0"),
        ),
    ),
    "join": Structure(
        "join_tree.machine.JoinMachine",
        ("tests/structures/join_tree/test_tree.py",),
        "not steps_and_bytes and not costs_no_look",
        (
            Canary("structures.join_tree.walk", "equals", "lambda array, p, end, value: (p, end - 1)"),
            Canary("structures.join_tree.spread", "live_but", "lambda tables, u, slot, one, other: True"),
            Canary("structures.join_tree.spread", "any_live", "lambda nodes, tables, spreading, e, slot, some: False"),
            Canary("structures.join_tree.spread", "group", "lambda tables, p, code, out, n: n"),
            Canary("structures.join_tree.spread", "leave_group", "lambda tables, p, slot: None"),
            Canary("structures.join_tree.walk", "within", "lambda tables, bounds, u, slot: True", 5),
            Canary("structures.join_tree.changes", "begin_walk", "lambda state, place: None"),
            # Of parts: what is missing is no entry; a null is a code; no run turns its sign; what a part brings and ends is not told.
            Canary("structures.join_tree.walk", "miss_level", "lambda walking, level: None"),
            Canary("structures.join_tree.spread", "sees", "lambda tables, p, slot: True"),
            Canary("structures.join_tree.spread", "begin_run", "lambda tables, run, sign: run.__setitem__(5, sign)"),
            Canary("structures.join_tree.changes", "told_now", "lambda tables, spreading, u, sign: (u, 0, 0, 0)"),
            Canary("structures.ordered.tree", "own_leaf", "lambda nodes, writing, o: o"),
        ),
    ),
    "match": Structure(
        "event_tree.machine.MatchMachine",
        ("tests/structures/event_tree/test_tree.py",),
        "not tens_of_thousands",
        (
            # An END before the rows that its interval still meets; the rows behind the last event forgotten.
            Canary("structures.event_tree.changes", "end_place", "lambda key, right: (key, right)"),
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
                "place_of_row",
                "lambda tree, key, left, right, slot, base: was(tree, key, left, left, slot, base)",
            ),
            Canary("structures.event_tree.runs", "enlist", "lambda lists, row: None"),
            Canary("structures.event_tree.runs", "move", "lambda tree, lists, tells_matched, is_outer, row, former: True"),
            Canary("structures.event_tree.changes", "belongs", "lambda tree, name, at: True"),
            Canary("structures.event_tree.changes", "is_thin", "lambda tree, o, leaf: False"),
            Canary("structures.event_tree.changes", "climb", "lambda tree, right, deepens: was(tree, right, deepens) if right else None"),
            # What only deepens a node taken for no change of it; a row that begins to fit, or ends to, taken for one that does not.
            Canary("structures.event_tree.changes", "climb", "lambda tree, right, deepens: was(tree, right, False)"),
            Canary("structures.event_tree.changes", "may_fit", "lambda tree, o, p: False"),
            Canary("structures.event_tree.search", "child_for", "lambda tree, o, name, at: 0"),
            Canary("structures.ordered.tree", "own_leaf", "lambda nodes, writing, o: o"),
            _PIN_IGNORED,
        ),
    ),
    "counting": Structure(
        "event_tree.counting_machine.CountingMachine",
        ("tests/structures/event_tree/test_counting.py",),
        "not tens_of_thousands",
        (
            Canary("structures.event_tree.changes", "end_place", "lambda key, right: (key, right)"),
            # Sums that are stale, of the wrong half, or of a row that is its own partner.
            Canary("structures.event_tree.summary", "weigh_leaf", "lambda tree, o, c, w: was(tree, o, c, 0)"),
            Canary("structures.event_tree.summary", "weigh_inner", "lambda tree, o, c, w: False"),
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
    "cover": Structure(
        "cover.machine.CoverMachine",
        ("tests/structures/cover/test_cover.py",),
        "not thousands",
        (
            # The last gap of a node is that of its first child alone, or none; the parts beside a partner reach too far.
            Canary("structures.ordered.summary", "last_gap_across", "lambda nodes, C, o, n, base: was(nodes, C, o, 1, base)"),
            Canary("structures.ordered.summary", "last_gap", "lambda nodes, C, o, base: None"),
            Canary(
                "structures.cover.walk",
                "next_covered",
                "lambda nodes, root, height, key, at: (lambda found, start: (found, start + 1 if found and start > at else start))"
                "(*was(nodes, root, height, key, at))",
            ),
            Canary("structures.cover.walk", "gap_or_run_begin", "lambda nodes, root, height, key, at, covered: at"),
            Canary("structures.cover.changes", "gap_begin", "lambda nodes, root, height, key, at: at"),
            Canary("structures.cover.changes", "run_begin", "lambda nodes, root, height, key, at: at"),
            Canary(
                "structures.cover.changes",
                "find_ends",
                "lambda trees, state, partner: (state.__setitem__(FROM, partner.left), state.__setitem__(TO, partner.right))[0]",
            ),
            Canary(
                "structures.cover.changes",
                "next_covered",
                "lambda nodes, root, height, key, at: was(nodes, root, height, key, at + 1) if at < POS_INF else (False, at)",
            ),
            Canary(
                "structures.cover.changes",
                "tell_split",
                "lambda state, row, partner, comes, out, n: was(state, row, partner._replace(right=row.right), comes, out, n)",
            ),
            Canary(
                "structures.cover.changes",
                "take_in",
                "lambda trees, of_rows, one: was(trees, of_rows, one if of_rows else one._replace(right=one.left))",
            ),
        ),
    ),
    "netting": Structure(
        "netting.machine.NettingMachine",
        ("tests/structures/netting/test_net.py",),
        "not thousands",
        (
            # Other rows count as the same; what comes back in the place of another is not known for it.
            Canary("structures.netting.net", "looks_so", "lambda told, wanted, r: told.columns[0, r] == wanted[0]"),
            Canary("structures.netting.net", "alike", "lambda told, table, low, high: high"),
            Canary("structures.netting.net", "place_of", "lambda told, table: 0"),
            Canary("structures.netting.net", "may_be", "lambda table, side: False", 3),
            Canary("structures.netting.net", "find_move", "lambda moves, table, c, version, old: -1"),
            # What comes is told before what goes.
            Canary("structures.netting.merging", "merge", "lambda goes, comes, found: was(comes, goes, found)"),
        ),
    ),
    "ranked": Structure(
        "ranked.machine.TopsMachine",
        ("tests/structures/ranked/test_tops.py",),
        "not tens_of_thousands and not ValidityMachine",
        (
            # A row too few; of those that tie the first ones of the index; what goes from the list in several versions.
            Canary("structures.ranked.changes", "is_full", "lambda count, most, tied: count >= most"),
            Canary(
                "structures.ranked.changes",
                "same",
                "lambda M, o, room, i, coordinates, start, step, length: length == 1 and was(M, o, room, i, coordinates, start, 1, 1)",
            ),
            Canary("structures.ranked.changes", "next_entry", "lambda nodes, root, arity, leaf, i: (0, 0)"),
            Canary("structures.ranked.changes", "take_out", "lambda nodes, writing, s, key, left, slot: True"),
            Canary("structures.ranked.changes", "cut", "lambda nodes, writing, h, coordinates, start, slot: 0"),
            Canary("structures.ordered.tree", "own_leaf", "lambda nodes, writing, o: o"),
            _PIN_IGNORED,
        ),
    ),
    "visits": Structure(
        "event_tree.visits_machine.VisitsMachine",
        ("tests/structures/event_tree/test_visits.py",),
        "not tens_of_thousands",
        (
            Canary("structures.event_tree.visits", "take_out", "lambda nodes, writing, s, key, left, slot: True"),
            Canary("structures.event_tree.visits", "measure", "lambda tree, both, changes, i, measured: None"),
            Canary("structures.event_tree.visits", "change_partner", "lambda sides, changes, i: None"),
            Canary("structures.event_tree.visits", "give", "lambda tree, both, changes, i: None"),
            Canary("structures.event_tree.visits", "overlong_of", "lambda recipes, itself, words: []"),
        ),
    ),
    "validity": Structure(
        "ranked.machine.ValidityMachine",
        ("tests/structures/ranked/test_tops.py",),
        "validity",
        (
            # The place before is forgotten; an end that is one too early.
            Canary("structures.ranked.changes", "seek_last", "lambda nodes, o, arity, place: (0, 0)"),
            Canary("structures.ranked.changes", "last_before", "lambda nodes, arity, leaf, i, key: was(nodes, arity, leaf, i, key) - 1"),
            Canary("structures.ranked.changes", "change_some", "lambda nodes, writing, h, items, signs, first, end: 0"),
            # Of rows that words tell apart the entry that comes first, whatever is below it.
            Canary("structures.ranked.tries", "below", "lambda nodes, leaf, i: 0"),
        ),
    ),
    "ij": Structure(
        "ij_heap.machine.IJMachine",
        ("tests/structures/ij_heap/test_heap.py", "tests/structures/ij_heap/test_erratum.py"),
        "not tens_of_thousands",
        (
            Canary("structures.multiway.tree", "own", "lambda nodes, writing, o: o"),
            Canary("structures.multiway.tree", "refresh", "lambda nodes, scratch, which, o, pending, entry, sign: 0", 1),
            Canary("structures.multiway.tree", "balance", "lambda nodes, writing, scratch, o: None"),
            Canary("structures.multiway.compaction", "moved", "lambda nodes, writing, o: (was(nodes, writing, o), o)[1]"),
            Canary("structures.multiway.summary", "touches", "lambda nodes, which, o, v, entry, sign: (sign > 0, sign > 0)", 1),
            Canary("structures.ij_heap.changes", "has_delta", "lambda sign: True"),
            Canary("structures.ij_heap.walk", "has_tuple", "lambda nodes, walking, g, o, v: False", 3),
            Canary("structures.ij_heap.walk", "crosses", "lambda nodes, walking, o, g, r: -1"),
            Canary("structures.ij_heap.walk", "at_least", "lambda nodes, o, i, key, bound: False"),
            Canary("structures.ij_heap.bind", "narrow", "lambda nodes, walking, o, v, level, p, crossing: True"),
            Canary("structures.ij_heap.strip", "widen", "lambda nodes, walking, lower, upper, v, key: None"),
            Canary("structures.multiway.extreme", "cross", "lambda nodes, scratch, which, f, r: False"),
            Canary("structures.multiway.whole", "drop", "lambda M, writing, o, cls: None"),
            _PIN_IGNORED,
        ),
    ),
    "blocks": Structure(
        "core.machine.BlocksMachine",
        ("tests/structures/core/test_blocks.py",),
        "not million",
        (
            _PIN_IGNORED,
            Canary("structures.core.blocks", "free", "lambda M, C, o, cls: None"),
            Canary("structures.core.blocks", "add_to_map", "lambda C, cls, chunk: None"),
            Canary("structures.core.blocks", "take_from_map", "lambda C, cls, chunk: None"),
            Canary("structures.core.blocks", "class_at", "lambda cls: was(0)"),
        ),
    ),
    "tracker": Structure(
        "tree_tracker.machine.TrackerMachine",
        ("tests/structures/tree_tracker/test_tracker.py",),
        "not tens_of_thousands",
        (
            # Algorithms 5.2 to 5.4 as printed: whatever ends has failed.
            Canary(
                "structures.tree_tracker.walk",
                "leave",
                "lambda plan, state, q: (state.__setitem__(10 + 12 * q + 3, 0), was(plan, state, q))[1]",
            ),
            Canary("structures.tree_tracker.walk", "group_end", "lambda nodes, leaf, arity, i, coordinates, start, step, length: i + 1"),
            Canary(
                "structures.tree_tracker.walk",
                "passed_over",
                "lambda table, address, atom: (was(table, address, atom)[0] if atom else 0, 0)",
            ),
            Canary("structures.tree_tracker.walk", "address_of", "lambda leaf, i: leaf", seed=3),
            Canary("structures.tree_tracker.walk", "next_entry", "lambda nodes, root, arity, leaf, i: (0, 0)"),
            Canary("structures.tree_tracker.no_goods", "place_of", "lambda table, address, atom: was(table, address, 0)", 4),
            Canary("structures.tree_tracker.runs", "forget_all", "lambda table: None"),
            Canary("structures.tree_tracker.runs", "change_of", "lambda groups, g, a: groups.starts[g]"),
            Canary("structures.index.changes", "own_block", "lambda nodes, writing, h, o: o"),
        ),
    ),
    "adaptive": Structure(
        "adaptive.machine.AdaptiveMachine",
        ("tests/structures/adaptive/test_adaptive.py",),
        "not tens_of_thousands",
        (
            Canary("structures.adaptive.walk", "same", "lambda M, o, room, i, coordinates, start, step, length: True"),
            Canary("structures.adaptive.holes", "next_range", "lambda state, stack: False"),
            Canary("structures.adaptive.walk", "go_behind", "lambda plan, state: was(plan, state) if plan[1] else end_item(state)"),
            Canary("structures.adaptive.product", "group_end", "lambda nodes, leaf, arity, i, coordinates, start, step, length: i + 1"),
            Canary("structures.adaptive.product", "same", "lambda M, o, room, i, coordinates, start, step, length: False"),
            Canary("structures.adaptive.dyadic", "end_of_block", "lambda x, level: was(x, min(level + 1, 15))"),
            Canary("structures.adaptive.dyadic", "block_of", "lambda x, level: x >> (4 * level)"),
            Canary("structures.adaptive.bow_tie", "block", "lambda x, level: 0"),
            Canary("structures.adaptive.dyadic", "recheck_points", "lambda nodes, writing, root, holders, items, key: None", 4),
            Canary("structures.index.changes", "own_block", "lambda nodes, writing, h, o: o"),
        ),
    ),
    "minesweeper": Structure(
        "minesweeper.machine.MinesweeperMachine",
        ("tests/structures/minesweeper/test_minesweeper.py",),
        "not tens_of_thousands and not claims and not log_that_is_full",
        (
            # What the kept tree rests on: what comes is cut out, or its intervals are dropped, by masks that name all atoms.
            Canary("structures.minesweeper.cds", "cut_value", "lambda tree, v, x, bit: None"),
            Canary("structures.minesweeper.cds", "drop_intervals", "lambda tree, v, bit: None"),
            Canary(
                "structures.minesweeper.shadow",
                "put_interval",
                "lambda tree, v, low, high, mask: was(tree, v, low, high, mask & -mask)",
            ),
            Canary("structures.minesweeper.cds", "agrees", "lambda tree, v, g: False"),
            Canary("structures.minesweeper.shadow", "pass_on", "lambda state, i, n: -1"),
            Canary("structures.minesweeper.walk", "group_end", "lambda nodes, leaf, arity, i, coordinates, start, step, length: i + 1"),
            Canary("structures.minesweeper.walk", "next_entry", "lambda nodes, root, arity, leaf, i: (0, 0)"),
            Canary("structures.index.changes", "own_block", "lambda nodes, writing, h, o: o"),
        ),
    ),
    "index": Structure(
        "index.machine.IndexMachine",
        ("tests/structures/index/test_indexes.py",),
        "not tens_of_thousands and not beyond_the_reach",
        (
            Canary("structures.index.changes", "own_block", "lambda nodes, writing, h, o: o"),
            Canary("structures.index.compaction", "drop_block", "lambda nodes, writing, h, o: None"),
            Canary("structures.index.changes", "neighbour_leaf", "lambda W, C, arity, right: 0"),
            Canary("structures.index.changes", "even_out", "lambda nodes, writing, h, o, c: None", 1),
            Canary("structures.index.changes", "in_common", "lambda nodes, writing, arity, o, before, after, coordinates, start: 0"),
            Canary("structures.index.indexes", "common_with_next", "lambda entries, arity: np.zeros(len(entries.slot), np.int8)"),
            _PIN_IGNORED,
        ),
    ),
    "triangle": Structure(
        "minesweeper.machine.TriangleMachine",
        ("tests/structures/minesweeper/test_triangle.py",),
        "not tens_of_thousands",
        (
            # The gaps of T under another a; a pair that is left at its first value of C; a walk that leaves out what is not known.
            Canary("structures.minesweeper.triangle", "take_out", "lambda tree, v, low, high, mask: tree.T.__setitem__(8 * v + 6, 0)"),
            Canary(
                "structures.minesweeper.triangle",
                "advance",
                "lambda state, d, high: was(state, min(d, 1), high if d < 2 else state[TUPLE + 1])",
            ),
            Canary("structures.minesweeper.triangle", "walk", "lambda tree, state, unknown, stop: was(tree, state, (False, 0), stop)"),
            Canary("structures.minesweeper.triangle", "next_sibling", "lambda tree, v: 0"),
        ),
    ),
    "union": Structure(
        "qdag.union_machine.UnionMachine",
        ("tests/structures/qdag/test_union.py",),
        "not told_once and not costs_its_entries",
        (
            Canary("structures.qdag.union", "is_told", "lambda nodes, walking: False"),
            Canary("structures.qdag.union", "is_there", "lambda nodes, walking, t: True"),
            Canary("structures.qdag.walk", "first_of_each", "lambda leaves, s, leading, arity, some: some"),
            Canary("structures.qdag.scan", "first_of_each", "lambda leaves, s, leading, arity, some: some"),
            Canary("structures.qdag.walk", "one_of_many", "lambda nodes, walking, t, ref, level: ref"),
            Canary("structures.qdag.walk", "take_given", "lambda walking: None"),
            Canary("structures.qdag.walk", "take_values", "lambda walking, t, i: None"),
        ),
    ),
}
